r"""Sampling: warm-up that learns step size and mass from all chains, and draws after it.

All chains move together, as rows of one tensor. They share the step size and the mass, which are
learned from all of them in warm-up and then stay, so that after it each is a Markov chain whose
stationary law is $e^{-E} / Z$: exactly for "nuts", "hmc", "chees", "mala" and "mh", up to a bias
that vanishes with the step size for "ula", "sgld" and "sghmc". With `cycles` the step of those
three falls within each cycle of K steps, $\eta_k = \frac\eta2 (1 + \cos \frac{\pi k}K)$, and draws
are kept after the `warmup` first steps of each.

References:
    Zhang, Li, Zhang, Chen and Wilson, Cyclical stochastic gradient MCMC for Bayesian deep learning,
    ICLR, 2020.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Literal

import torch
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.arguments import choice, number, whole
from vademecum.bayes.sampling._kernels import KERNELS, TARGETS
from vademecum.bayes.sampling._plans import Plan
from vademecum.bayes.sampling._teams import Member, in_processes, on_devices
from vademecum.bayes.sampling.chain_results import Chains
from vademecum.bayes.steps._energy_calls import Energy, starting_point

__all__ = ["sample"]


def sample(
    energy: Energy,
    start: Float[Tensor, " chains P"],
    *,
    kernel: Literal["nuts", "hmc", "chees", "mala", "mh", "ula", "sgld", "sghmc"] = "nuts",
    draws: int = 1000,
    warmup: int = 1000,
    thin: int = 1,
    eta: float | None = None,
    mass: float | Tensor | None = None,
    metric: Literal["diagonal", "dense", "fixed"] = "diagonal",
    target: float | None = None,
    leapfrogs: int = 16,
    max_depth: int = 10,
    max_leapfrogs: int = 1000,
    friction: float = 1.0,
    cycles: int | None = None,
    keep: Callable[[Tensor], Tensor] | None = None,
    out: str | PathLike[str] | None = None,
    max_rhat: float = 1.05,
    devices: Sequence[torch.device | str] | Literal["ranks"] | None = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> Chains:
    r"""Draw from $e^{-E} / Z$ by many chains at once.

    Args:
        energy: What `posterior` gives, or any function of (chains, P) points that gives a number
            for each, from its own row alone.
        start: Where the chains begin, at finite energies.
        kernel: "nuts" doubles trajectories until they turn back; "hmc" makes them of `leapfrogs`
            steps, "chees" of equal lengths that it learns, which suits many chains and GPUs;
            "mala" is one such step, "mh" a random walk. "ula", "sgld" and "sghmc" make no test, and
            the latter two use a part of the data where the energy offers that.
        draws: How many draws of each chain to keep.
        warmup: How many steps of each chain come before.
        thin: How many steps there are for each draw.
        eta: The step size at which adaptation begins; "ula", "sgld" and "sghmc" need it and keep
            it.
        mass: The mass at which adaptation begins, and stays without it: a number, a diagonal (P,),
            or a matrix (P, P).
        metric: What is learned in warm-up: a "diagonal" mass, a "dense" one, or none, "fixed".
        target: The acceptance that the step size is adapted to; by default 0.8 for "nuts" and
            "hmc", 0.651 for "chees", 0.574 for "mala" and 0.234 for "mh".
        leapfrogs: How many leapfrog steps "hmc" takes.
        max_depth: How often "nuts" may double a trajectory.
        max_leapfrogs: How many leapfrog steps "chees" may take.
        friction: The friction of "sghmc".
        cycles: How many cycles of falling step sizes "ula", "sgld" and "sghmc" make, each with a
            warm-up of its own.
        keep: A function of a draw of all chains, (chains, P), whose result is stored in its place:
            predictions, say; with `devices` of those that are in one place.
        out: A file for the draws (.npy, replaced if it is there), which are then never in memory at
            once.
        max_rhat: What the largest split R may be without a `ConvergenceWarning`.
        devices: Where chains are, in equal shares: several devices, of which each has a thread, or
            "ranks" for the processes of `torchrun`, which all make the same call. Step size, mass
            and R come from the chains of all, and the result has all of them; with `out` all write
            into one file. By default chains are where `start` is. An energy with a method
            `on(device)`, such as that of `posterior`, is copied to each device; any other must
            take points of each.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
            Energies are then asked for some chains at a time.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If there are no chains, or one starts where the energy is NaN or infinite;
            or memory is too small for the state of the chains.

    Example:
        >>> ball = lambda theta: theta.square().sum(1) / 2
        >>> chains = sample(ball, torch.zeros(16, 3), kernel="chees", draws=500, warmup=100)
        >>> bool((chains.draws.var() - 1).abs() < 0.1), bool(chains.acceptance.mean() > 0.5)
        (True, True)
    """
    choice("kernel", kernel, KERNELS)
    choice("metric", metric, ("diagonal", "dense", "fixed"))
    whole("draws", draws, low=1)
    whole("warmup", warmup, low=0)
    whole("thin", thin, low=1)
    theta = starting_point("start", start)
    if kernel == "chees" and len(theta) < 2:
        raise ValueError("start must have at least 2 chains for kernel 'chees', got 1")
    knobs = {
        "leapfrogs": whole("leapfrogs", leapfrogs, low=1),
        "max_depth": whole("max_depth", max_depth, low=1, high=20),
        "max_leapfrogs": whole("max_leapfrogs", max_leapfrogs, low=1),
        "friction": number("friction", friction, low=0),
    }
    rate = number("target", target or TARGETS.get(kernel, 0.5), above=0, below=1)
    first = None if eta is None else number("eta", eta, above=0)
    _insist_on_cycles(kernel, draws, cycles)
    plan = Plan(
        kernel, draws, warmup, thin, first, mass, metric, rate, knobs, cycles, keep, out, memory,
        max_rhat, progress,
    )  # fmt: skip
    if devices is None:
        found = plan.carried_out(Member(len(theta)), energy, theta, generator)
    elif isinstance(devices, str):
        choice("devices", devices, ("ranks",))
        found = in_processes(plan.carried_out, energy, theta, generator)
    else:
        found = on_devices(plan.carried_out, energy, theta, generator, devices)
    _tell(found, max_rhat)
    return found


def _insist_on_cycles(kernel: str, draws: int, cycles: int | None) -> None:
    if cycles is None:
        return
    if kernel in TARGETS:
        raise ValueError(f"cycles must be None for kernel {kernel!r}, which adapts its step size")
    if draws % whole("cycles", cycles, low=1):
        raise ValueError(f"draws must be a multiple of cycles, got {draws} and {cycles}")


def _tell(found: Chains, max_rhat: float) -> None:
    if not (found.converged or math.isnan(found.rhat)):
        _warn(f"chains have not mixed: the largest split R is {found.rhat:.3g}, above {max_rhat:g}")
    if len(found.divergences):
        _warn(f"{len(found.divergences)} draws followed a divergent step: the step is too large")
    if bool(found.failures.any()):
        _warn(
            f"{int(found.failures.sum())} proposals had an energy or a gradient that is NaN or"
            f" infinite, and none was accepted"
        )


def _warn(message: str) -> None:
    warnings.warn(message, ConvergenceWarning, stacklevel=4)
