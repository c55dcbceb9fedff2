"""RMSProp and Adam: what torch's compute, from the gradients that they saw."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.claims import claim, equals
from vademecum.optimization.claims._recorded import recorded, rosenbrock_gradient


def averages(grads: Tensor, beta: float, power: int) -> Tensor:
    r"""The sums $\sum_{i \le t} \beta^{t - i} g_i^p$ for every t, as written: term by term."""
    t = torch.arange(len(grads))
    lag = (t[:, None] - t).clamp(min=0)
    weights = torch.where(t[:, None] >= t, beta ** lag.double(), 0.0)
    return weights @ grads**power


@claim(
    by="identity",
    sources=("C-093", "D-173", "D-174"),
    budget=0.5,
    full={"steps": 500},
    short=r"v_t = \beta v_{t-1} + (1 - \beta) g_t^2, \quad"
    r" \theta_{t+1} = \theta_t - \eta\, g_t / (\sqrt{v_t} + \epsilon)",
)
def rmsprop(weighted: bool = True, corrected: bool = False, usual: float = 0.99, steps: int = 50):
    r"""RMSProp.

    $v_t = \beta v_{t-1} + (1 - \beta) g_t^2$ and
    $\theta_{t+1} = \theta_t - \frac{\eta}{\sqrt{v_t} + \epsilon}\, g_t$ elementwise (some put
    $\epsilon$ under the root): AdaGrad with a forgetting average, or Adam without momentum and
    without bias correction. The usual value is $\beta = 0.99$.

    Checked for torch's `RMSprop` on Rosenbrock's function in 2 and 5 dimensions, each displacement
    from $v_t = (1 - \beta) \sum_{i \le t} \beta^{t-i} g_i^2$ of the gradients that it saw. torch's
    `Adam` with $\beta_1 = 0$ takes the same steps once its correction is undone, that is with
    $\eta$ and $\epsilon$ divided by $\sqrt{1 - \beta^t}$.

    Knobs:
        weighted: Whether the average has the factor $1 - \beta$.
        corrected: Whether the average is divided by $1 - \beta^t$.
        usual: The usual value of $\beta$, torch's default.
        steps: How many steps are taken.
    """
    t = torch.arange(1.0, steps + 1)[:, None]
    for d, beta, eps in ((2, 0.9, 1e-8), (5, 0.99, 0.1)):
        start, at = torch.randn(d), {"d": d, "beta": beta}

        def make(params: list[Any], beta: float = beta, eps: float = eps):
            return torch.optim.RMSprop(params, lr=0.01, alpha=beta, eps=eps)

        def stated(grads: Tensor, beta: float = beta, eps: float = eps) -> Tensor:
            v = averages(grads, beta, 2) * (1 - beta if weighted else 1)
            v = v / (1 - beta**t) if corrected else v
            return -0.01 * grads / (v.sqrt() + eps)

        # Displacements inherit the rounding of iterates of size 1.
        path, grads = recorded(make, start, rosenbrock_gradient, steps)
        yield equals("displacement of torch's RMSprop", path.diff(dim=0), stated(grads), tol=1e-12,
                     **at)  # fmt: skip

        def undo(optimizer: Any, t: int, beta: float = beta, eps: float = eps) -> None:
            root = (1 - beta**t) ** 0.5
            optimizer.param_groups[0] |= {"lr": 0.01 / root, "eps": eps / root}

        def adam(params: list[Any], beta: float = beta):
            return torch.optim.Adam(params, betas=(0.0, beta))

        path, grads = recorded(adam, start, rosenbrock_gradient, steps, undo)
        yield equals("displacement of Adam without momentum and correction", path.diff(dim=0),
                     stated(grads), tol=1e-12, **at)  # fmt: skip
    default = torch.optim.RMSprop([torch.zeros(1)]).defaults["alpha"]
    yield equals("torch's default of beta", default, usual)


rmsprop.foil(r"the average without the factor $1 - \beta$", weighted=False)
rmsprop.foil("Adam without momentum, which is corrected", corrected=True)
rmsprop.foil("the memory of Adam's second moment", usual=0.999)


class Moments(NamedTuple):
    """The averages of Adam after step t, and the second one before."""

    m: Any
    v: Any
    stale: Any
    t: Any


def adam_step(a: Moments, beta1: float, beta2: float, eps: float) -> Any:
    """Adam's step over the rate."""
    return -(a.m / (1 - beta1**a.t)) / ((a.v / (1 - beta2**a.t)) ** 0.5 + eps)


def uncorrected(a: Moments, beta1: float, beta2: float, eps: float) -> Any:
    """The step without bias correction."""
    return -a.m / (a.v + eps) ** 0.5


def uphill(a: Moments, beta1: float, beta2: float, eps: float) -> Any:
    """The step with a plus sign, stale scale and constant corrections."""
    return (a.m / (1 - beta1)) / (a.stale**0.5 / (1 - beta2) + eps)


@claim(
    by="identity",
    sources=(
        *("A-087", "A-088", "B-249", "B-252", "B-253", "B-255", "C-090", "C-091", "C-092"),
        "D-175",
    ),
    budget=0.5,
    full={"steps": 1000},
    short=r"\theta_{t+1} = \theta_t - \eta\, \frac{m_t / (1 - \beta_1^t)}"
    r"{\sqrt{v_t / (1 - \beta_2^t)} + \epsilon}",
)
def adam(
    rule: Callable[..., Any] = adam_step,
    betas: tuple[float, float] = (0.9, 0.999),
    steps: int = 100,
):
    r"""Adam.

    From $m_0 = v_0 = 0$: $m_t = \beta_1 m_{t-1} + (1 - \beta_1) g_t$,
    $v_t = \beta_2 v_{t-1} + (1 - \beta_2) g_t^2$ and
    $\theta_{t+1} = \theta_t - \eta\, \frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon}$ with
    $\hat m_t = m_t / (1 - \beta_1^t)$, $\hat v_t = v_t / (1 - \beta_2^t)$, all elementwise. Usual
    values are $\beta_1 = 0.9$, $\beta_2 = 0.999$. Under a constant gradient every step is
    $-\eta\, \mathrm{sign}(g)$, up to a relative $\epsilon / |g|$.

    Checked for torch's `Adam` on Rosenbrock's function in 2 and 5 dimensions, each displacement
    from the direct sums $m_t = (1 - \beta_1) \sum_{i \le t} \beta_1^{t-i} g_i$ and alike $v_t$ of
    the gradients that it saw; the formula itself on a constant gradient, where $m_t$ and $v_t$ are
    $(1 - \beta^t)$ times the gradient and its square, up to $t = 20{,}000$.

    Knobs:
        rule: The step over $\eta$, of $m_t$, $v_t$, $v_{t-1}$, $t$, the two rates and $\epsilon$.
        betas: The usual values, torch's defaults.
        steps: How many steps are taken.
    """
    beta1, beta2 = betas
    t = torch.arange(1.0, steps + 1)[:, None]
    for d, eps, eta in ((2, 1e-8, 0.01), (5, 0.3, 0.05)):

        def make(params: list[Any], eps: float = eps, eta: float = eta):
            return torch.optim.Adam(params, lr=eta, betas=betas, eps=eps)

        path, grads = recorded(make, torch.randn(d), rosenbrock_gradient, steps)
        m, v = (1 - beta1) * averages(grads, beta1, 1), (1 - beta2) * averages(grads, beta2, 2)
        stale = torch.cat([torch.zeros(1, d), v[:-1]])
        stated = eta * rule(Moments(m, v, stale, t), beta1, beta2, eps)
        yield equals("displacement of torch's Adam", path.diff(dim=0), stated, tol=1e-12, d=d)
    eps = 1e-8
    for g in (1.0, -300.0):
        for name, k in (("step after many", 20_000), ("first step", 1)):
            a = Moments((1 - beta1**k) * g, (1 - beta2**k) * g * g, 0.0, k)
            a = a._replace(stale=(1 - beta2 ** (k - 1)) * g * g)
            size = rule(a, beta1, beta2, eps)
            yield equals(f"{name} on a constant gradient, over the rate", size, -g / abs(g),
                         tol=2 * eps, g=g, t=k)  # fmt: skip
    for name, found, stated in zip(("first", "second"), torch_betas(), betas, strict=True):
        yield equals(f"torch's default of the {name} rate", found, stated)


def torch_betas() -> tuple[float, float]:
    """The rates with which torch ships Adam."""
    return torch.optim.Adam([torch.zeros(1)]).defaults["betas"]


adam.erratum(
    "A-088",
    printed=r"$\theta_{t+1}[j] = \theta_t[j]"
    r" + \frac{\eta}{\gamma_{t,j} / (1 - \beta) + \delta} \frac{\Delta_{t+1,j}}{1 - \alpha}$",
    right=r"$\theta_{t+1}[j] = \theta_t[j] - \frac{\eta}{\gamma_{t+1,j} / \sqrt{1 - \beta^{t+1}}"
    r" + \delta} \frac{\Delta_{t+1,j}}{1 - \alpha^{t+1}}$",
    why=r"Ascent sign, stale $\gamma_t$, and constants $1 - \beta$, $1 - \alpha$ where"
    r" $\sqrt{1 - \beta^{t+1}}$ and $1 - \alpha^{t+1}$ belong. On a constant gradient with"
    r" $\alpha = 0.9$, $\beta = 0.999$ the printed step tends to $+0.01\, \eta$; Adam takes"
    r" $-\eta$ every time.",
    weight="hard",
    refuted_by="step after many on a constant gradient, over the rate",
    rule=uphill,
)
adam.erratum(
    "C-092",
    printed=r"$\theta_{t+1}^i = \theta_t^i - \frac{\eta}{\sqrt{\nu_t^i + \epsilon}} g_t^i$",
    right=r"$\theta_{t+1}^i = \theta_t^i - \frac{\eta}{\sqrt{\hat\nu_t^i} + \epsilon} \hat g_t^i$"
    r" with $\hat\nu_t = \nu_t / (1 - \alpha^t)$, $\hat g_t = g_t / (1 - \beta^t)$",
    why=r"Bias correction is missing, so it is not Adam: from zero averages with $\beta = 0.9$,"
    r" $\alpha = 0.999$ the first step is $0.1 / \sqrt{0.001} = 3.16$ times $\eta$ instead of"
    r" $\eta$.",
    weight="hard",
    refuted_by="first step on a constant gradient, over the rate",
    rule=uncorrected,
)
adam.erratum(
    "B-255",
    printed=r"Typical values $\beta = 0.9$, $\alpha = 0.99$",
    right=r"Typical values $\beta = 0.9$, $\alpha = 0.999$",
    why=r"Kingma and Ba propose, and the common libraries ship, $\alpha = 0.999$ for the second"
    " moment; 0.99 (a memory of 100 instead of 1000 steps) is the usual value of RMSProp.",
    weight="soft",
    refuted_by="torch's default of the second rate",
    betas=(0.9, 0.99),
)


def divided(a: Fraction, b: Fraction) -> float:
    """A quotient of fractions, infinite where there is none."""
    return float(a / b) if b else float("inf")


@claim(
    by="identity",
    sources=("A-087", "B-249", "B-250", "B-251", "C-090", "C-091", "D-176"),
    budget=0.3,
    full={"steps": 300},
    short=r"\mathbb E[m_t] = (1 - \beta^t)\, \mathbb E[g], \quad \hat m_t = m_t / (1 - \beta^t)",
)
def bias_correction(late: int = 0, constant: bool = False, steps: int = 50):
    r"""Bias correction of an exponential moving average.

    $m_t = \beta m_{t-1} + (1 - \beta) g_t$ from $m_0 = 0$ equals
    $(1 - \beta) \sum_{i \le t} \beta^{t-i} g_i$, whose weights sum to $1 - \beta^t$; for a
    stationary gradient law $\mathbb E[m_t] = (1 - \beta^t)\, \mathbb E[g]$, so
    $\hat m_t = m_t / (1 - \beta^t)$ is unbiased. The debiased momentum step
    $-\frac{\eta}{1 - \beta^t} m_t$ equals $-\eta g$ from the first step on when the gradient is
    constant.

    Checked in fractions with $\beta = 9/10$: the weights by the recursion on unit sequences, a
    constant gradient, and the mean over all $2^6$ sequences of $g \in \{1, 3\}$. torch's `Adam`
    keeps these averages, and moves by $-\eta$ under a constant gradient.

    Knobs:
        late: By how much the exponent of $\beta$ in the correction lags behind.
        constant: Whether the correction is $1 - \beta$ in every step.
        steps: How many steps are taken.
    """
    beta = Fraction(9, 10)

    def correction(t: int) -> Fraction:
        return 1 - beta if constant else 1 - beta ** (t - late)

    def average(sequence: Any) -> Fraction:
        m = Fraction(0)
        for g in sequence:
            m = beta * m + (1 - beta) * g
        return m

    for t in (1, 2, 6, steps):
        weights = [average([int(i == j) for j in range(t)]) for i in range(t)]
        direct = [(1 - beta) * beta ** (t - 1 - i) for i in range(t)]
        exact = sum(a != b for a, b in zip(weights, direct, strict=True))
        yield equals("weights that differ from the direct ones", exact, 0, t=t)
        whole = divided(sum(weights, Fraction(0)), correction(t))
        yield equals("sum of the corrected weights", whole, 1.0, tol=0.0, t=t)
        for g in (3, -7):
            found = divided(average([g] * t), correction(t))
            yield equals("corrected average of a constant", found, float(g), tol=0.0, t=t)
    total = sum((average(s) for s in product((1, 3), repeat=6)), Fraction(0))
    yield equals("mean of the corrected average", divided(total / 64, correction(6)), 2.0, tol=0.0)
    x = torch.nn.Parameter(torch.zeros(2))
    optimizer, g = torch.optim.Adam([x], lr=0.5, betas=(0.9, 0.9), eps=0.0), torch.tensor([3.0, -7])
    for t in range(1, 11):
        before, x.grad = x.detach().clone(), g
        optimizer.step()
        state = optimizer.state[x]
        for key, power in (("exp_avg", 1), ("exp_avg_sq", 2)):
            hat = state[key] / float(correction(t) or 1)
            yield equals("corrected average that Adam keeps", hat, g**power, t=t, power=power)
        yield equals("step of Adam", x.detach() - before, -0.5 * g.sign(), t=t)


bias_correction.foil(r"division by the constant $1 - \beta$", constant=True)
bias_correction.foil(r"the exponent $t - 1$, which divides by zero at first", late=1)
