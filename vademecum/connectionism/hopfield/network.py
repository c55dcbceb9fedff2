r"""The Hopfield network, an associative memory.

Units $x_i \in \{-1, +1\}$ with couplings $W$ and biases $\theta$ (thresholds are $b = -\theta$)
take the sign of their field,

$$x_i \leftarrow \mathrm{sign}(h_i + \theta_i), \qquad h = W x,$$

one at a time (asynchronous) or all at once (synchronous). A tie, $h_i + \theta_i = 0$, keeps the
state. For symmetric $W$ the energy

$$E(x) = -\tfrac12 x^\top W x - \theta^\top x$$

changes by $-\Delta x_i (h_i + \theta_i) - \tfrac12 w_{ii} \Delta x_i^2$ when unit $i$ does, so it
falls with every asynchronous flip as long as no $w_{ii}$ is negative, and the network comes to rest
in a minimum over single flips. Stored patterns lie at such minima: a corrupted one runs back to it.
Synchronous updates end in a fixed point or a cycle of length 2 if $W$ is symmetric, and may have
longer cycles if it is not.

Networks built from patterns keep the factors of $W$ (see `_storage`) and never $W$ itself.
The claims `hopfield_network`, `hopfield_energy` and `hopfield_synchronous_cycles` check this.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from vademecum.arguments import choice, floats, signs, square, whole
from vademecum.connectionism.hopfield._dynamics import settle, sweep
from vademecum.connectionism.hopfield._storage import store
from vademecum.connectionism.hopfield.retrieval import Retrieval, with_warning
from vademecum.randomness import source

__all__ = ["HopfieldNetwork"]

_DTYPES = (torch.float32, torch.float64)


class HopfieldNetwork(nn.Module):
    r"""An associative memory of $n$ threshold units.

    Args:
        patterns: The patterns to store, of any dtype with entries -1 and +1.
        weights: The couplings $W$ themselves, instead of patterns. They need not be symmetric nor
            have a zero diagonal; but only then (or with a positive diagonal) is the energy sure
            to fall, which is what `symmetric` tells.
        rule: How to store patterns: `"hebbian"`, `"pseudo-inverse"` or `"perceptron"`.
        theta: The biases; none by default.
        margin: What the perceptron rule makes all $x_i^t (h_i + \theta_i)$ exceed.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a round of
            the perceptron rule, the only rule that iterates; `stored` tells which patterns lack.
        dtype: float32 or float64; by default that of the patterns or weights, if it is one of
            these, or else torch's default.

    Attributes:
        stored: Which patterns are fixed points (with the margin); `None` for given weights.

    Raises:
        ValueError: For entries other than -1 and +1, weights that are not finite or not square, or
            patterns that the rule cannot store because they are linearly dependent.

    References:
        Hopfield, Neural networks and physical systems with emergent collective computational
        abilities, PNAS, 1982.

    Example:
        >>> net = HopfieldNetwork(torch.tensor([[1, 1, 1, 1, 1], [1, -1, 1, -1, 1]]))
        >>> net.retrieve(torch.tensor([1, -1, 1, -1, -1])).states
        tensor([ 1., -1.,  1., -1.,  1.])
    """

    a: Tensor
    p: Tensor | None
    d: Tensor
    theta: Tensor
    scale: Tensor
    is_symmetric: Tensor
    stored: Tensor | None

    def __init__(
        self,
        patterns: Shaped[Tensor, " s n"] | None = None,
        *,
        weights: Float[Tensor, " rows n"] | None = None,
        rule: str = "hebbian",
        theta: Float[Tensor, " n"] | None = None,
        margin: float = 0.0,
        max_iter: int = 1000,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        if (patterns is None) == (weights is None):
            raise ValueError("either patterns or weights must be given, got both or neither")
        if patterns is None:
            given = square("weights", floats("weights", weights, ndim=2))
        else:
            given = signs("patterns", patterns, ndim=2)
        dtype = dtype or (given.dtype if given.dtype in _DTYPES else torch.get_default_dtype())
        n, like = given.shape[1], {"dtype": _exact(dtype), "device": given.device}
        theta = torch.zeros(n, **like) if theta is None else floats("theta", theta, ndim=1, width=n)
        theta = theta.to(**like)
        if patterns is None:
            a, p, scale, symmetric, stored = given.to(**like), None, 1.0, given.equal(given.T), None
            d = torch.zeros(n, **like)
        else:
            columns = given.T.to(**like).contiguous()
            a, p, scale, symmetric, stored = store(
                columns, theta, rule=rule, margin=margin, max_iter=max_iter
            )
            d = (a * p).sum(1)
        buffers = {
            "a": a, "p": p, "d": d, "theta": theta, "scale": torch.tensor(scale, **like),
            "is_symmetric": torch.tensor(symmetric, device=given.device), "stored": stored,
        }  # fmt: skip
        for name, value in buffers.items():
            self.register_buffer(name, None if value is None else value.clone())  # nothing shared

    @property
    def n(self) -> int:
        """The number of units."""
        return len(self.a)

    @property
    def symmetric(self) -> bool:
        """Whether the couplings are symmetric, by the rule or as given."""
        return bool(self.is_symmetric)

    @property
    def weights(self) -> Float[Tensor, " n n"]:
        r"""The couplings $W$ as a dense matrix, built when asked for."""
        if self.p is None:
            return self.a.clone()
        return self.scale * (self.a @ self.p.T).fill_diagonal_(0)

    def extra_repr(self) -> str:
        """The size, for `print`."""
        kept = "dense" if self.p is None else f"patterns={self.p.shape[1]}"
        return f"n={self.n}, {kept}, symmetric={self.symmetric}"

    def fields(self, states: Shaped[Tensor, " *batch n"]) -> Float[Tensor, " *batch n"]:
        r"""The fields $h + \theta$, whose signs the units take.

        Example:
            >>> HopfieldNetwork(torch.tensor([[1, -1, 1]])).fields(torch.tensor([1, 1, 1])) * 3
            tensor([ 0., -2.,  0.])
        """
        return self._fields(self._checked(states))

    def energy(self, states: Shaped[Tensor, " *batch n"]) -> Float[Tensor, " *batch"]:
        r"""The energy $E(x) = -\frac12 x^\top W x - \theta^\top x$.

        Only the symmetric part of $W$ counts, so that this is defined for any network; it falls in
        asynchronous retrieval if `symmetric`.

        Example:
            >>> net = HopfieldNetwork(weights=torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
            >>> net.energy(torch.tensor([[1, 1], [1, -1]]))
            tensor([-1.,  1.])
        """
        x = self._checked(states)
        return self._energy(x, self._fields(x))

    def forward(self, states: Shaped[Tensor, " *batch n"]) -> Float[Tensor, " *batch n"]:
        """Retrieve in a fixed order: a deterministic function of each state by itself."""
        return self.retrieve(states, order="fixed").states

    @torch.no_grad()
    def step(
        self,
        states: Shaped[Tensor, " *batch n"],
        *,
        mode: str = "asynchronous",
        order: str = "random",
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, " *batch n"]:
        """One step of the dynamics, in which all units are visited once.

        Args:
            states: The states, with entries -1 and +1.
            mode: `"asynchronous"`, unit after unit, or `"synchronous"`, all at once.
            order: The order of the units, where they come one after the other: `"random"` draws a
                permutation, the same for the whole batch; `"fixed"` goes from first to last.
            generator: Where random numbers come from; torch's global generator by default.

        Example:
            >>> pair = HopfieldNetwork(weights=torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
            >>> pair.step(torch.tensor([1, -1]), mode="synchronous")
            tensor([-1.,  1.])
        """
        _check_mode(mode, order)
        start = self._checked(states)
        x = start.reshape(-1, self.n)
        return self._step(x, self._fields(x), mode, order, generator).reshape(start.shape)

    def retrieve(
        self,
        states: Shaped[Tensor, " *batch n"],
        *,
        mode: str = "asynchronous",
        order: str = "random",
        max_iter: int = 100,
        trajectory: bool = False,
        generator: torch.Generator | None = None,
    ) -> Retrieval:
        r"""Run the dynamics until each state is at a fixed point or on a cycle.

        Args:
            states: The starts, with entries -1 and +1.
            mode: As in `step`.
            order: As in `step`; `"random"` draws a permutation for each step.
            max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each visits all
                units once.
            trajectory: Whether to keep the states and energies at the start and after each step.
            generator: Where random numbers come from; torch's global generator by default.

        A cycle is found wherever a step is a function of the state, that is in all cases but the
        random order, and then there is no warning; see `settle`.
        """
        whole("max_iter", max_iter, low=1)
        options = {"mode": mode, "order": order, "generator": generator}
        end = self._retrieve(states, max_iter=max_iter, trajectory=trajectory, **options)
        return with_warning(end, max_iter)

    @torch.no_grad()
    def _retrieve(
        self,
        states: Tensor,
        *,
        mode: str = "asynchronous",
        order: str = "random",
        max_iter: int,
        trajectory: bool = False,
        generator: torch.Generator | None,
    ) -> Retrieval:
        """Retrieve without a warning."""
        _check_mode(mode, order)
        start = self._checked(states)
        path, energies = [], []

        def record(x: Tensor, f: Tensor) -> None:
            if trajectory:
                path.append(x.clone())
                energies.append(self._energy(x, f))

        x, n_iter, period = settle(
            start.reshape(-1, self.n),
            self._fields,
            lambda x, f: self._step(x, f, mode, order, generator),
            max_iter=max_iter,
            cycles=mode == "synchronous" or order == "fixed",
            record=record,
        )
        shape = start.shape[:-1]
        return Retrieval(
            states=x.reshape(start.shape),
            n_iter=n_iter.reshape(shape),
            converged=(period == 1).reshape(shape),
            period=period.reshape(shape),
            trajectory=torch.stack(path).reshape(-1, *start.shape) if trajectory else None,
            energies=torch.stack(energies).reshape(-1, *shape) if trajectory else None,
        )

    def _step(
        self, x: Tensor, f: Tensor, mode: str, order: str, generator: torch.Generator | None
    ) -> Tensor:
        if mode == "synchronous":
            return torch.where(x * f < 0, -x, x)
        theta = self.theta / self.scale
        units = self._units(order, generator)
        return sweep(x, units, a=self.a, p=self.p, d=self.d, theta=theta)

    def _fields(self, x: Tensor) -> Tensor:
        h = x @ self.a.T if self.p is None else (x @ self.p) @ self.a.T
        return self.scale * (h - self.d * x) + self.theta

    def _energy(self, x: Tensor, f: Tensor) -> Tensor:
        return -0.5 * (x * (f + self.theta)).sum(-1)

    def _units(self, order: str, generator: torch.Generator | None) -> Tensor:
        if order == "fixed":
            return torch.arange(self.n, device=self.a.device)
        return torch.randperm(self.n, **source(generator, self.a.device)).to(self.a.device)

    def _checked(self, states: Tensor) -> Tensor:
        x = signs("states", states, width=self.n)
        if x.device != self.a.device:
            raise ValueError(f"states must be on {self.a.device}, got {x.device}")
        return x.to(_exact(self.a.dtype))


def _check_mode(mode: str, order: str) -> None:
    choice("mode", mode, ("asynchronous", "synchronous"))
    choice("order", order, ("random", "fixed"))


def _exact(dtype: torch.dtype) -> torch.dtype:
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be float32 or float64, got {dtype}")
    return dtype
