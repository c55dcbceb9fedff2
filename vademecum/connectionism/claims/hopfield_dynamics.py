"""Hopfield dynamics: an energy that only falls."""

from itertools import pairwise

import torch
from torch import Tensor

from vademecum.claims import at_most, claim, equals
from vademecum.connectionism import HopfieldNetwork, hopfield_flips
from vademecum.connectionism.claims.hopfield import all_states, settled


def random_couplings(n: int, *, symmetry: int = 1, size: int = 3) -> tuple[Tensor, Tensor]:
    """Random integer couplings with zero diagonal and $W^T$ = symmetry * $W$, and biases."""
    upper = torch.randint(-size, size + 1, (n, n)).triu(1).double()
    return upper + symmetry * upper.T, torch.randint(-size, size + 1, (n,)).double()


def code(x: Tensor) -> Tensor:
    """The number of a state among all states."""
    return ((x.long() + 1) // 2 * 2 ** torch.arange(x.shape[1])).sum(1)


def asynchronous_steps(w: Tensor, theta: Tensor, x: Tensor, sweeps: int):
    """The plain rule, unit after unit in random orders: unit, state, new state, field."""
    for _ in range(sweeps):
        for i in torch.randperm(len(w)).tolist():
            field = x @ w[i] + theta[i]
            new = x.clone()
            new[:, i] = torch.where(field == 0, x[:, i], field.sign())
            yield i, x, new, field
            x = new


def in_turn(w: Tensor, theta: Tensor, x: Tensor, sweeps: int) -> tuple[Tensor, Tensor]:
    """The states before and after each visit, from the first unit to the last again and again."""
    path = [x]
    for i in [*range(len(w))] * sweeps:
        x = x.clone()
        x[:, i] *= 1 - 2 * (x[:, i] * (x @ w[i] + theta[i]) < 0).double()
        path.append(x)
    moves = (torch.stack(path) * (torch.stack(path) @ w.T + theta) < 0).any(2)
    return torch.stack(path), moves


@claim(
    by="sampling",
    sources=("B-065", "B-067", "C-022", "C-023", "E-075"),
    budget=1.0,
    full={"sizes": (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)},
    short=r"W = W^\top,\ w_{ii} \ge 0: -\tfrac12 \sum_{i \ne j} w_{ij} x_i x_j"
    r" - \sum_i \theta_i x_i \text{ falls with every flip}",
)
def hopfield_energy(
    half: float = 0.5,
    symmetry: int = 1,
    selves: tuple[int, ...] = (0, 2),
    sizes: tuple[int, ...] = (2, 5, 8),
):
    r"""The Hopfield energy is a Lyapunov function.

    For symmetric $W$ with $w_{ii} \ge 0$ the energy

    $$E(x) = -\frac12 \sum_{i \ne j} w_{ij} x_i x_j - \sum_i \theta_i x_i$$

    never increases under asynchronous updates $x_i \leftarrow \mathrm{sign}(h_i + \theta_i)$,
    $h_i = \sum_j w_{ij} x_j$ (a tie keeps the state): a flip changes it by
    $-\Delta x_i (h_i - w_{ii} x_i + \theta_i) \le 0$. Hence every asynchronous run ends in a fixed
    point, and if $w_{ii} = 0$ the fixed points are the local minima of $E$ under single flips.
    (With thresholds $b_i = -\theta_i$ the linear term is $+\sum_i b_i x_i$.)

    *Proof.* The terms of $E$ with $x_i$ are $-x_i (h_i - w_{ii} x_i + \theta_i)$, where the bracket
    does not contain $x_i$; if unit $i$ flips then $x_i (h_i + \theta_i) < 0$ before. Each flip
    lowers $E$, and there are finitely many states. (Hopfield, 1982.)

    *Check.* All states of random networks with integer couplings, in exact arithmetic: each single
    update; the end states of `retrieve` against the minima found by enumeration; the flips of
    a longest run, one by one: fields are half-integers, so each lowers $E$ by at least 1.

    Knobs:
        half: The factor of $\sum_{i \ne j} w_{ij} x_i x_j$ in the energy, up to the sign.
        symmetry: The factor between $W^\top$ and $W$, 1 or -1.
        selves: The self-couplings $w_{ii}$ that are tried.
        sizes: The numbers of units of random networks.
    """
    pair = torch.tensor([[0.0, 1.0], [symmetry, 0.0]]), torch.tensor([1.5, 0.0])
    networks = [pair, *(random_couplings(n, symmetry=symmetry) for n in sizes)]
    for w, theta in networks:
        n, states = len(w), all_states(len(w)).double()
        energies = -half * (states @ w * states).sum(1) - states @ theta
        minimum = torch.stack([energies[code(states) ^ (1 << i)] >= energies for i in range(n)])
        for own in selves:
            at, coupled = {"n": n, "self_coupling": own}, w + own * torch.eye(n)
            for i, x, new, field in asynchronous_steps(coupled, theta, states, sweeps=3):
                change = energies[code(new)] - energies[code(x)]
                yield at_most("change of the energy", change, 0.0, tol=0.0, **at)
                formula = -(new - x)[:, i] * (field - own * x[:, i])
                name = "change of the energy, against its formula"
                yield equals(name, change, formula, tol=0.0, **at)
            net = HopfieldNetwork(weights=coupled, theta=theta)
            energy = net.energy(states) + own * n / 2
            yield equals("energy of the network", energy, energies, tol=0.0, **at)
            yield from _descent(net, states, at)
        ends = settled(HopfieldNetwork(weights=w, theta=theta), states, 2**n).states
        reached = torch.zeros(2**n, dtype=torch.bool).index_fill(0, code(ends), True)
        yield equals(
            "whether a run ends in a state, against the minima", reached, minimum.all(0), n=n
        )


def _descent(net: HopfieldNetwork, states: Tensor, at: dict[str, int]):
    """Retrieval from all states, and one of the longest runs flip by flip."""
    end = settled(net, states, len(states))
    assert end.energies is not None
    lowest = end.energies.cummin(0).values
    yield at_most("energy along retrieval", end.energies, lowest, tol=0.0, **at)
    yield equals("period of the end", end.period, 1, **at)
    n, end = net.n, net.retrieve(states, order="fixed", trajectory=True)
    visits, moves = in_turn(net.weights, net.theta, states, 4 * n)
    steps = moves[::n].sum(0)  # sweeps at whose start some unit wants to flip
    yield equals("sweeps until rest", end.n_iter, steps, **at)
    assert end.trajectory is not None
    path = visits[::n][: len(end.trajectory)]
    yield equals("states, sweep by sweep", end.trajectory, path, tol=0.0, **at)
    k = int(steps.argmax())
    flips = hopfield_flips(net, states[k], order="fixed")
    when, units = visits[:, k].diff(dim=0).nonzero().unbind(1)
    yield equals("number of flips", len(flips.units), len(units), **at)
    yield equals("whether it is at rest", flips.converged, 1, **at)
    along = net.energy(flips.states())
    yield equals("energy flip by flip", flips.energies, along, tol=0.0, **at)
    if len(units):
        yield equals("unit of each flip", flips.units, units, **at)
        yield equals("visits before each flip", flips.visits, when, **at)
        yield at_most("change of the energy at a flip", flips.energies.diff(), -1.0, **at)


hopfield_energy.erratum(
    "B-067",
    printed=r"$=-\sum_{i,j=1}^n\theta_{ij}x_ix_j-\sum_{i=1}^n\theta_{i0}x_i$",
    right=r"$E=-\frac12\sum_{i,j=1}^n\theta_{ij}x_ix_j-\sum_{i=1}^n\theta_{i0}x_i$",
    why=r"as scanned: the $\frac12$ (or a sum over $i<j$) is missing; the scan lost the left side "
    r"of this line, so it may have lost the fraction too (sheets C and E print $-\frac12$); the "
    r"function as scanned changes by $-\Delta x_i(2h_i+\theta_{i0})$ while the update follows "
    r"$h_i+\theta_{i0}$: with $\theta_{12}=1$, $\theta_{10}=1.5$, state $(-1,-1)$ the first unit "
    "flips and the value rises by 1",
    weight="scan",
    refuted_by="change of the energy",
    half=1.0,
)
hopfield_energy.foil("antisymmetric couplings have no such energy", symmetry=-1)
hopfield_energy.foil("negative self-couplings make units flip uphill", selves=(-20,))


@claim(
    by="sampling",
    sources=("C-024",),
    budget=0.5,
    short=r"w_{ii} > \textstyle\sum_{j \ne i} |w_{ij}| + |b_i|\ \forall i"
    r" \implies \text{all } 2^n \text{ states are fixed}",
)
def hopfield_self_coupling(
    sign: int = 1, remaining: float = 0.0, sizes: tuple[int, ...] = (1, 2, 5, 8)
):
    r"""Self-couplings create spurious fixed points.

    If $w_{ii} > \sum_{j \ne i} |w_{ij}| + |b_i|$ for all $i$, every one of the $2^n$ states is a
    fixed point of $X_i \leftarrow \mathrm{sign}(\sum_j w_{ij} X_j - b_i)$; with $w_{ii} = 0$ a
    unit's next state does not depend on its present one.

    *Check.* All states of random networks with integer couplings.

    Knobs:
        sign: The sign of the strong self-couplings.
        remaining: The self-coupling that is left where there should be none.
        sizes: The numbers of units of the networks.
    """
    for n in sizes:
        w, b = random_couplings(n)
        x = all_states(n).double()
        strong = w + sign * torch.diag(1 + w.abs().sum(1) + b.abs())
        for mode in ("asynchronous", "synchronous"):
            end = HopfieldNetwork(weights=strong, theta=-b).step(x, mode=mode)
            yield equals("states, a sweep later", end, x, tol=0.0, n=n, mode=mode)
        net = HopfieldNetwork(weights=w + remaining * torch.eye(n), theta=-b)
        for i in range(n):
            flipped = x.clone()
            flipped[:, i] *= -1
            after, before = net.fields(flipped)[:, i], net.fields(x)[:, i]
            yield equals("field of a unit that was flipped", after, before, tol=0.0, n=n)


hopfield_self_coupling.foil("with a large negative diagonal no state is fixed", sign=-1)
hopfield_self_coupling.foil("the diagonal is not irrelevant to the dynamics", remaining=1.0)


def period_by_tables(w: Tensor, theta: Tensor) -> Tensor:
    """The eventual period of each state under synchronous updates, a tie keeping the state."""
    n = len(w)
    x = all_states(n).double()
    field = x @ w.T + theta
    after = torch.where(field == 0, x, field.sign())
    successor = code(after).tolist()
    periods = []
    for start in range(2**n):
        seen, state = {}, start
        while state not in seen:
            seen[state] = len(seen)
            state = successor[state]
        periods.append(len(seen) - seen[state])
    return torch.tensor(periods)


@claim(
    by="sampling",
    sources=("B-066", "C-023", "E-075"),
    budget=0.5,
    short=r"W = W^\top \implies \text{synchronous updates end in a cycle of length 1 or 2}",
)
def hopfield_synchronous_cycles(
    longest: int = 2, symmetry: int = 1, sizes: tuple[int, ...] = (2, 3, 5, 7)
):
    r"""Synchronous Hopfield updates can cycle, with period 2.

    Updating all units at once need not converge: for symmetric $W$ the synchronous dynamics end in
    a fixed point or a cycle of length 2, never longer, whether a tie keeps the state or goes to
    $+1$ or $-1$. Two units with $w_{12} = w_{21} = 1$ alternate between $(1, -1)$ and $(-1, 1)$.
    Without symmetry longer cycles occur: that of
    $W = \begin{pmatrix} 0 & 1 \\ -1 & 0 \end{pmatrix}$ has period 4.

    *Proof.* The two-step energy $-x^\top W x' - \theta^\top (x + x')$ of successive states changes
    by $-(x'' - x)^\top (W x' + \theta) \le 0$. On a cycle it is constant, so $x''_i = x_i$ wherever
    the field is not 0. At a tie that keeps the state $x''_i = x'_i$, and from then on both rules
    leave unit $i$ as it is; so on a cycle it never changes. (Goles, Olivos, 1981.)

    *Check.* All states of random networks with integer couplings and any diagonal; a bias of
    $\pm\frac12$ sends the ties to $\pm1$. Periods against a table of successors.

    Knobs:
        longest: The longest period that is said to occur.
        symmetry: The factor between $W^\top$ and $W$, 1 or -1.
        sizes: The numbers of units of random networks.
    """
    pair = HopfieldNetwork(weights=torch.tensor([[0.0, 1.0], [symmetry, 0.0]]))
    period = settled(pair, torch.tensor([1, -1]), 16, "synchronous").period
    yield at_most("period of two friendly units", period, longest)
    yield equals("period of two friendly units", period, 2)
    against = HopfieldNetwork(weights=torch.tensor([[0.0, -1.0], [-1.0, 0.0]]))
    period = settled(against, torch.tensor([1, 1]), 16, "synchronous").period
    yield equals("period of two hostile units", period, 2)
    turning = HopfieldNetwork(weights=torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    period = settled(turning, all_states(2), 16, "synchronous").period
    yield equals("period without symmetry", period, 4)
    for n in sizes:
        w, theta = random_couplings(n, symmetry=symmetry)
        w += torch.diag(torch.randint(-3, 4, (n,)).double())
        for tie in (-0.5, 0.0, 0.5):
            net, at = HopfieldNetwork(weights=w, theta=theta + tie), {"n": n, "tie": tie}
            x = all_states(n)
            end = settled(net, x, 4 * 2**n, "synchronous")
            yield equals(
                "period of a random network, against a table",
                end.period,
                period_by_tables(w, theta + tie),
                **at,
            )
            yield at_most("period of a random network", end.period, longest, **at)
            chain = [x.double()]
            for _ in range(5):
                chain.append(net.step(chain[-1], mode="synchronous"))
            two_step = [-(y * (z @ w)).sum(1) - (y + z) @ (theta + tie) for y, z in pairwise(chain)]
            change = torch.stack(two_step).diff(dim=0)
            yield at_most("change of the two-step energy", change, 0.0, tol=0.0, **at)


hopfield_synchronous_cycles.foil("synchronous updates do not always converge", longest=1)
hopfield_synchronous_cycles.foil("without symmetry there are longer cycles", symmetry=-1)
