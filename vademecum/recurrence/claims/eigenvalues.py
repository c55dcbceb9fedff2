"""Eigenvalues of linear recurrent units: inside the unit circle, on a ring, as time scales."""

import cmath
import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from vademecum.claims import Evidence, at_least, at_most, claim, consistent, equals, in_mean
from vademecum.recurrence import LRU, LinearRecurrence, lru_init, memory_length


def unit(nu: Tensor, theta: Tensor) -> LRU:
    """A linear recurrent unit with these parameters, of their dtype."""
    net = LRU(1, len(nu)).to(nu.dtype).requires_grad_(False)
    layer: Any = net.layers[0]
    layer.nu.copy_(nu)
    layer.theta.copy_(theta)
    return net


@claim(
    by="identity", sources=("C-145", "C-146"), budget=0.5,
    short=r"\lambda = \exp(-e^{\nu} + \mathrm{i} \theta): \quad |\lambda| = e^{-e^\nu} \in (0, 1),"
    r" \quad \nu = \ln(-\ln r)",
)  # fmt: skip
def lru_eigenvalues(
    rate: Literal["exp(nu)", "nu"] = "exp(nu)",
    inverse: Literal["ln(-ln r)", "-ln r"] = "ln(-ln r)",
    n: int = 1000,
) -> Iterator[Evidence]:
    r"""The eigenvalues of a linear recurrent unit are stable for every value of its parameters.

    $\lambda = \exp(-e^{\nu} + \mathrm i \theta)$ has the modulus $r = e^{-e^\nu} \in (0, 1)$ and
    the phase $\theta$ for all real $\nu$ and $\theta$, so that stability is built in; a wanted
    modulus is reached by $\nu = \ln(-\ln r)$.

    *Proof.* $e^\nu > 0$. Numbers on a machine round, and $e^{-e^{-40}}$ would be 1: the library
    keeps moduli below 1 also then, in single and in double precision.

    Knobs:
        rate: How fast a state is said to fade, as a function of $\nu$.
        inverse: The parameter that is said to give the modulus $r$.
        n: How many pairs of parameters are drawn, $\nu$ from $[-10, 3]$.
    """
    nu, theta = 13 * torch.rand(n) - 10, 40 * torch.rand(n) - 20
    pairs = zip(nu.tolist(), theta.tolist(), strict=True)
    rates = {"exp(nu)": math.exp, "nu": float}[rate]
    stated = np.array([cmath.exp(complex(-rates(v), t)) for v, t in pairs])
    yield at_most("modulus", np.abs(stated), 1 - 2.0**-52, tol=0.0)
    yield at_least("modulus", np.abs(stated), 1e-10, tol=0.0)
    found = unit(nu, theta).eigenvalues[0]
    yield equals("eigenvalue", found, torch.as_tensor(stated), tol=1e-12)
    straight = torch.remainder(found.angle() - theta + 1, 2 * math.pi) - 1
    yield equals("phase less theta, modulo 2 pi", straight, 0.0, tol=1e-12)
    for r in (0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 0.9999):
        drawn = lru_init(3, r_min=r, r_max=r)
        wanted = math.log(-math.log(r)) if inverse == "ln(-ln r)" else -math.log(r)
        yield equals("parameter of a wanted modulus", drawn.nu, wanted, tol=1e-11, r=r)
        yield equals("modulus reached", drawn.eigenvalues.abs(), r, tol=1e-12, r=r)
    far = torch.tensor([-1e4, -100.0, -40.0, -20.0, -15.0, -5.0, 5.0, 50.0, 1e4])
    for dtype in (torch.float32, torch.float64):
        values = unit(far.to(dtype), torch.linspace(0, 6, 9).to(dtype)).eigenvalues[0]
        name = f"modulus at extreme parameters, {dtype}".replace("torch.", "")
        yield at_most(name, values.abs(), 1 - torch.finfo(dtype).eps, tol=0.0)


lru_eigenvalues.foil("without the inner exponential negative parameters explode", rate="nu")
lru_eigenvalues.foil("one logarithm too few", inverse="-ln r")


@claim(
    by="sampling", sources=("C-147", "C-148"), budget=0.7,
    short=r"\theta \sim U[0, 2\pi],\ r \sim U[r_{\min}, r_{\max}];\ \text{by area: }"
    r" r^2 \sim U[r_{\min}^2, r_{\max}^2]",
)  # fmt: skip
def lru_initialisation(
    power: int = 2, turn: float = 2 * math.pi, n: int = 100_000
) -> Iterator[Evidence]:
    r"""Linear recurrent units begin with eigenvalues on a ring.

    Phases are drawn uniformly from $[0, 2 \pi]$ and moduli uniformly from an interval
    $I = [r_{\min}, r_{\max}] \subseteq [0, 1]$; an interval near 1 favours long memory. The
    original unit draws $r^2$ uniformly from $[r_{\min}^2, r_{\max}^2]$ instead, which makes the
    eigenvalues uniform on the ring by area.

    Each law has its test by Kolmogorov and Smirnov at the level $10^{-7}$, of eight in all, so that
    false alarms add up to less than $10^{-6}$; modulus and phase are uncorrelated.

    Knobs:
        power: Which power of the modulus is said to be uniform where draws are by area.
        turn: Phases are said to be uniform up to this.
        n: How many eigenvalues are drawn.
    """
    low, high = 0.4, 0.9
    for by, p in (("modulus", 1), ("area", power)):
        kind: Any = by
        drawn = lru_init(n, r_min=low, r_max=high, by=kind)
        values, r = drawn.eigenvalues, drawn.eigenvalues.abs()
        yield at_least("modulus", r, low, by=by)
        yield at_most("modulus", r, high, by=by)
        yield at_least("phase", drawn.theta, 0.0, by=by)
        yield at_most("phase", drawn.theta, 2 * math.pi, by=by)
        yield equals("input normalisation squared", (2 * drawn.log_gamma).exp(), 1 - r**2, by=by)
        net = LRU(2, n // 20, layers=2, r_min=low, r_max=high, by=kind).eigenvalues.detach()
        for name, sample in (("lru_init", values), ("LRU", net.flatten())):
            p_value = uniformity(sample.abs() ** p, low**p, high**p)
            yield consistent(f"p-value of moduli uniform in power {p}", p_value, alpha=1e-7,
                             by=by, of=name)  # fmt: skip
            phases = torch.remainder(sample.angle(), 2 * math.pi)
            p_value = uniformity(phases, 0, turn)
            yield consistent("p-value of uniform phases", p_value, alpha=1e-7, by=by, of=name)
        together = (r - r.mean()) * (drawn.theta - math.pi)
        yield in_mean("covariance of modulus and phase", together, 0.0, by=by)
    half = lru_init(n // 10, r_min=low, r_max=high, max_phase=1.0).theta
    yield in_mean("mean phase up to 1", half, 0.5)
    for near, far in ((0.5, 0.9), (0.9, 0.99), (0.99, 0.999)):
        times = memory_length(LRU(1, 200, r_min=near, r_max=far))
        yield at_least("time scale", times, -1 / math.log(near), r_min=near)
        yield at_most("time scale", times, -1 / math.log(far), r_max=far)


def uniformity(sample: Tensor, low: float, high: float) -> float:
    """The p-value of a sample under the uniform law, by Kolmogorov and Smirnov."""
    law = stats.uniform(low, high - low).cdf
    found: Any = stats.ks_1samp(sample.numpy(), law, method="asymp")
    return float(found.pvalue)


lru_initialisation.foil("moduli uniform where draws are by area", power=1)
lru_initialisation.foil("phases on the upper half of the ring only", turn=math.pi)


@claim(
    by="identity", sources=("C-149",), budget=0.5,
    short=r"r = |\lambda|: \ r^t = e^{-t/\tau},\ \tau = -1 / \ln r, \quad"
    r" \frac{1}{1-r} - 1 < \tau < \frac{1}{1-r} - \frac12",
)  # fmt: skip
def eigenvalue_time_scale(
    scale: Literal["-1/ln r", "1/(1-r)", "1/r", "2 pi/phase"] = "-1/ln r", n: int = 50
) -> Iterator[Evidence]:
    r"""Eigenvalues are time scales.

    The impulse response of a diagonal channel is $\lambda^t$ with the modulus
    $|\lambda|^t = e^{-t / \tau}$, $\tau = -1 / \ln |\lambda|$, and
    $\frac{1}{1 - |\lambda|} - 1 < \tau < \frac{1}{1 - |\lambda|} - \frac12$: each eigenvalue shows
    directly whether its channel carries short- or long-range dependence.

    *Proof.* With $x = 1 - |\lambda|$, $-1 / \ln(1 - x) = \frac1x - \frac12 - \frac{x}{12} - \dots$
    with positive coefficients that add up to $\frac12$. So the upper bound is missed by at least
    $\frac{x}{12}$.

    Knobs:
        scale: What is said to be the time scale.
        n: How many eigenvalues are drawn, with moduli from 0.05 to 0.999.
    """
    scales = {
        "-1/ln r": memory_length,
        "1/(1-r)": lambda values: 1 / (1 - values.abs()),
        "1/r": lambda values: 1 / values.abs(),
        "2 pi/phase": lambda values: 2 * math.pi / values.angle().abs(),
    }[scale]
    values = torch.polar(0.05 + 0.949 * torch.rand(n), 6 * torch.rand(n))
    tau = scales(values)
    one = torch.ones(n, 1, dtype=values.dtype)
    whole = LinearRecurrence(values, one, torch.eye(n, dtype=values.dtype)).requires_grad_(False)
    impulse = torch.zeros(1, 101, 1)
    impulse[0, 0] = 1
    response = whole(impulse).output[0].abs().log()
    t = torch.arange(101.0)[:, None]
    yield equals("logarithm of an impulse response", response, -t / tau, tol=1e-11)
    yield equals("time scale of the recurrence", memory_length(whole), tau, tol=1e-11)
    net = unit((-values.abs().log()).log(), values.angle())
    first, last = net(impulse[:, :1]).state[0, 0].abs(), net(impulse).state[0, 0].abs()
    yield equals("fading of a unit's state in 100 steps", (last / first).log(), -100 / tau,
                 tol=1e-11)  # fmt: skip
    yield equals("time scale of a unit", memory_length(net)[0], tau, tol=1e-11)
    r = 1 - torch.logspace(-4, math.log10(0.999), 200)
    x, times = 1 - r, scales(torch.complex(r, 1e-300 + 0 * r))
    yield at_least("time scale less its lower bound", times - 1 / x + 1, 1e-3)
    yield at_least("upper bound less time scale, over x / 12", 12 * (1 / x - 0.5 - times) / x, 1.0,
                   tol=1e-6)  # fmt: skip


eigenvalue_time_scale.foil("1 / (1 - r), within one step of it", scale="1/(1-r)")
eigenvalue_time_scale.foil("1 / r, which is never long", scale="1/r")
eigenvalue_time_scale.foil("read off the phase", scale="2 pi/phase")
