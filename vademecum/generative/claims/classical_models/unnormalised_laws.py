"""Laws that are known up to a constant: their gradient, and the restricted Boltzmann machine."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.generative import RestrictedBoltzmannMachine
from vademecum.generative.claims._binary_states import bits, joint


def differences(f: Callable[[Tensor], Tensor], theta: Tensor, h: float = 1e-5) -> Tensor:
    """Central differences of several functions of a vector, one row for each parameter."""
    steps = h * torch.eye(len(theta))
    return torch.stack([(f(theta + s) - f(theta - s)) / (2 * h) for s in steps])


@claim(
    by="identity",
    sources=("B-487",),
    budget=0.3,
    short=r"\nabla_\theta \log p_\theta(x) = -\nabla_\theta E_\theta(x)"
    r" + E_{x' \sim p_\theta}[\nabla_\theta E_\theta(x')]",
)
def energy_model_gradient(model_term: float = 1.0, d: int = 5):
    r"""Likelihood gradient of an energy-based (unnormalised) model.

    A prescribed model states its density explicitly, possibly only up to a constant,
    $p_\theta(x) = e^{-E_\theta(x)} / Z_\theta$; the difficulty is $Z_\theta$. Its likelihood
    gradient is $\nabla_\theta \log p_\theta(x) = -\nabla_\theta E_\theta(x) + \mathbb E_{x' \sim
    p_\theta}[\nabla_\theta E_\theta(x')]$, data term minus model term, so maximum likelihood
    matches expected statistics.

    *Checked* on all $2^d$ binary vectors for a quadratic energy, linear in its parameters, and for
    a restricted Boltzmann machine, whose energy $-a^\top v - \sum_j \log(1 + e^{b_j + (W v)_j})$ is
    not: the formula equals central differences of the log-likelihood, that of the machine from
    `score_samples`. (Third derivatives of order one make differences at $10^{-5}$ wrong by
    $10^{-10}$, rounding by $10^{-10}$.) Where Newton's method ends for a family with two
    statistics, their means in the model are those in the data.

    Knobs:
        model_term: The factor of the second term.
        d: How many binary units a state has.
    """
    x = bits(d)
    pairs = torch.stack([x[:, i] * x[:, j] for i in range(d) for j in range(i)], 1)
    T = torch.cat([x, pairs], 1)  # the energy is T theta, its gradient T
    theta = torch.randn(T.shape[1])
    measured = differences(lambda t: torch.log_softmax(-T @ t, 0), theta)
    p = torch.exp(-T @ theta)
    formula = -T + model_term * (p / p.sum()) @ T
    yield equals("gradient of a quadratic energy", formula.T, measured, tol=1e-7, d=d)
    m = 3
    W, a, b = torch.randn(m, d), torch.randn(d), torch.randn(m)

    def likelihoods(theta: Tensor) -> Tensor:
        parts = theta[: m * d].view(m, d), theta[m * d : m * d + d], theta[m * d + d :]
        return RestrictedBoltzmannMachine.from_parameters(*parts).score_samples(x)

    measured = differences(likelihoods, torch.cat([W.flatten(), a, b]))
    law = joint(W, a, b)
    given = law @ bits(m) / law.sum(1, keepdim=True)  # the mean of h for each v
    minus = torch.cat([(given[:, :, None] * x[:, None]).flatten(1), x, given], 1)
    formula = minus - model_term * law.sum(1) @ minus
    yield equals("gradient of a machine", formula.T, measured, tol=1e-7, d=d, m=m)
    stats = torch.stack([x.sum(1), (x[:, 1:] * x[:, :-1]).sum(1)], 1)
    shares = torch.rand(len(x)) + 0.1
    data = shares / shares.sum() @ stats

    def minus_likelihood(t: Tensor) -> Tensor:
        return torch.logsumexp(stats @ t, 0) - data @ t

    t = torch.zeros(2)
    for _ in range(30):
        slope = torch.func.grad(minus_likelihood)(t)
        step = torch.linalg.solve(torch.func.hessian(minus_likelihood)(t), slope)
        t = t - step / max(1.0, float(step.norm()))
    yield equals(
        "means of two statistics", model_term * (stats @ t).softmax(0) @ stats, data, tol=1e-8, d=d
    )


energy_model_gradient.foil("the constant does not depend on the parameters", model_term=0.0)
energy_model_gradient.foil("the model term with the wrong sign", model_term=-1.0)


@claim(
    by="identity",
    sources=("E-270",),
    budget=0.4,
    short=r"p \propto e^{a^\top v + b^\top h + v^\top W h} \Rightarrow"
    r" p(h | v) = \prod_j \sigma(\pm (b_j + (W^\top v)_j))",
)
def restricted_boltzmann_machine(given: bool = True, factor: float = 1.0, offset: float = 1.0):
    r"""Restricted Boltzmann machine.

    For $p(v, h) \propto \exp(a^\top v + b^\top h + v^\top W h)$ on binary units the hidden code is
    discrete and its units are conditionally independent given the visible ones, with $P(h_j = 1
    \mid v) = \sigma(b_j + (W^\top v)_j)$, and vice versa; without conditioning they are dependent
    in general.

    *Checked* for standard normal machines of $4 \times 3$ and $2 \times 5$ units, all of whose
    states are counted: for every $v$ the table of $h$ is the product of the logistic marginals, for
    every $h$ that of $v$, and both are what `RestrictedBoltzmannMachine` gives, and so are its
    likelihoods and its constant; its draws, and a step of Gibbs from them, have the means of all
    products of two visible units. Without conditioning, two hidden units with $b = -2$ and weights
    4 to one visible unit with $a = -4$ have $p(h)$ off the product of its marginals by $0.1$.
    For a machine of 22 x 24 units, most of them without weights so that its constant is known, the
    annealed one is within six of the standard errors it tells.

    Knobs:
        given: Whether units are independent given the other layer, or without.
        factor: What the argument of the logistic function is multiplied with.
        offset: The factor of the biases.
    """
    for d, m in ((4, 3), (2, 5)):
        W, a, b = torch.randn(m, d), torch.randn(d), torch.randn(m)
        law = joint(W, a, b)
        machine = RestrictedBoltzmannMachine.from_parameters(W, a, b)
        other = RestrictedBoltzmannMachine.from_parameters(W.T, b, a)
        sides = (("hidden", W, b, law, machine), ("visible", W.T, a, law.T, other))
        for name, w, bias, table, layer in sides:
            k, states = len(bias), bits(len(w.T))
            p = torch.sigmoid(factor * (offset * bias + states @ w.T))
            if not given:
                p = (table.sum(0) @ bits(k)).expand_as(p)
                table = table.sum(0).expand(len(states), -1) * table.sum(1, keepdim=True)
            product = torch.where(bits(k)[:, None] > 0, p, 1 - p).prod(-1).T
            shares = table / table.sum(1, keepdim=True)
            yield equals(f"table of {name} units", shares, product, tol=1e-12, d=d, m=m)
            means = law @ bits(m) / law.sum(1, keepdim=True)
            if name == "visible":
                means = law.T @ bits(d) / law.sum(0)[:, None]
            yield equals(f"means of {name} units", layer.transform(states), means, d=d, m=m)
        scores = machine.score_samples(bits(d)).exp()
        yield equals("likelihoods of visible states", scores, law.sum(1), tol=1e-12, d=d, m=m)
        yield from _draws(machine, law.sum(1), d, m)
    law = joint(4 * torch.ones(2, 1), torch.tensor([-4.0]), torch.tensor([-2.0, -2.0])).sum(0)
    marginals = law @ bits(2)
    product = torch.where(bits(2) > 0, marginals, 1 - marginals).prod(1)
    gap = (law - product).abs().max()
    yield at_least("gap of two hidden units from independence", gap, 0.1)
    W, a, b = 0.3 * torch.randn(24, 22), torch.randn(22), torch.randn(24)
    W[5:], W[:, 4:] = 0.0, 0.0
    inner = torch.exp(
        (bits(4) @ a[:4])[:, None] + bits(5) @ b[:5] + bits(4) @ W[:5, :4].T @ bits(5).T
    )
    lone = torch.log1p(torch.cat([a[4:], b[5:]]).exp()).sum()
    found = RestrictedBoltzmannMachine.from_parameters(W, a, b).log_partition(n_temperatures=100)
    distance = abs(found.value - float(inner.sum().log() + lone))
    # Weights of 100 chains that spread by less than a fifth: the mean of the logarithm is off by
    # less than a tenth of the error, and six errors are never seen.
    yield at_most("distance of the annealed constant, in errors", distance / found.error, 6.0)


def _draws(
    machine: RestrictedBoltzmannMachine, law: Tensor, d: int, m: int, n: int = 20_000
) -> Iterator[Evidence]:
    """Draws, and where a step of Gibbs takes them: both have the law."""
    first, second = (int(i) for i in torch.randint(2**31 - 1, (2,)))
    drawn = machine.sample(n, random_state=first)
    wanted = (law[:, None] * bits(d)).T @ bits(d)
    # Hoeffding: a mean of n zeros and ones is further off at a rate of 2 exp(-2 n t^2) = 1e-9.
    bound = math.sqrt(math.log(2e9) / (2 * n))
    for name, v in (("draws", drawn), ("Gibbs", machine.gibbs(drawn, random_state=second))):
        off = (v.T @ v / n - wanted).abs()
        yield at_most(f"error of means of products, {name}", off, bound, tol=0.0, d=d, m=m)


restricted_boltzmann_machine.foil("independent without conditioning", given=False)
restricted_boltzmann_machine.foil("the logistic function of units +1, -1", factor=2.0)
restricted_boltzmann_machine.foil("without the biases", offset=0.0)
