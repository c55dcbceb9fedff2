r"""The page docs/samplers.md: each sampler with the exact predictor of a mixture, and its error.

    python -m bench.generative_samplers            # write the page
    python -m bench.generative_samplers --check    # exit with 1 if it is stale

Data are a mixture of three normal laws in one dimension. As the predictor is exact, all error is
the sampler's: the Wasserstein distance between its law and that of the data, $\int |F_n - F|$.
Samplers without new noise start at quantiles of the normal law, the others at random points.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.harness import Row, Skipped
from vademecum.files import write_atomically
from vademecum.generative import (
    VPSDE,
    MixtureScore,
    NoiseSchedule,
    annealed_langevin,
    ddim_sample,
    ddpm_sample,
    probability_flow,
    reverse_sde_sample,
)

__all__ = ["error", "main", "page", "rows"]

PAGE = Path(__file__).parent.parent / "docs" / "samplers.md"
WEIGHTS, MEANS, STDS = (0.3, 0.5, 0.2), (-1.5, 0.2, 1.4), (0.2, 0.35, 0.12)
N = 20_000
FLOOR = 0.01  # what a random sample of this size is away from its own law, at most about


class Entry(NamedTuple):
    """A line of the table."""

    sampler: str
    steps: int
    error: float
    random: bool


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    """None: this makes a page."""
    yield from ()


def mixture(process: Any) -> MixtureScore:
    """The exact predictor under a process."""
    weights, means, stds = (torch.tensor(v, dtype=torch.float64) for v in (WEIGHTS, MEANS, STDS))
    return MixtureScore(weights, means[:, None], stds.square(), process=process)


def quantiles(n: int) -> Tensor:
    """Standard normal numbers in equal shares."""
    return torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)[:, None]


def error(x: Tensor) -> float:
    """The Wasserstein distance of samples from the mixture."""
    grid = torch.linspace(-6, 6, 24_001, dtype=torch.float64)
    parts = [
        w * torch.special.ndtr((grid - m) / s) for w, m, s in zip(WEIGHTS, MEANS, STDS, strict=True)
    ]
    found = torch.searchsorted(x.flatten().sort().values, grid) / x.numel()
    return float((found - torch.stack(parts).sum(0)).abs().mean() * 12)


def dice() -> torch.Generator:
    """The same random numbers for every line."""
    return torch.Generator().manual_seed(0)


def in_steps() -> Iterator[Entry]:
    """Samplers of a schedule of 1,000 steps."""
    for name, schedule in (
        ("linear", NoiseSchedule.linear()),
        ("cosine", NoiseSchedule.cosine()),
    ):
        model = mixture(schedule)
        for steps in (5, 10, 20, 50, 100, 1000):
            start = quantiles(N)
            x = ddim_sample(model, start.shape, schedule=schedule, steps=steps, start=start)
            yield Entry(f"DDIM, {name}", steps, error(x), False)
        common: dict[str, Any] = {"schedule": schedule, "generator": dice()}
        for steps in (20, 100):
            x = ddim_sample(model, (N, 1), steps=steps, eta=1.0, **common)
            yield Entry(f"DDIM with eta 1, {name}", steps, error(x), True)
        for spread in ("small", "large"):
            x = ddpm_sample(model, (N, 1), variance=spread, steps=200, **common)
            yield Entry(f"DDPM, {spread} variance, {name}", 200, error(x), True)


def in_few_steps() -> Iterator[Entry]:
    """Steps that are not even, and the second order."""
    schedule = NoiseSchedule.linear()
    model, start = mixture(schedule), quantiles(N)
    for order, spacing, steps in product((1, 2), ("even", "quadratic", "snr"), (10, 20, 50)):
        if order == 1 and spacing == "even":
            continue
        few: dict[str, Any] = {"steps": steps, "spacing": spacing, "order": order}
        words = {1: "", 2: "second order, "}[order] + f"{spacing} steps, linear"
        x = ddim_sample(model, start.shape, schedule=schedule, start=start, **few)
        yield Entry(f"DDIM, {words}", steps, error(x), False)
        if order == 2 and spacing == "quadratic":
            x = ddim_sample(model, (N, 1), schedule=schedule, eta=1.0, generator=dice(), **few)
            yield Entry(f"DDIM with eta 1, {words}", steps, error(x), True)


def in_time() -> Iterator[Entry]:
    """Samplers of a stochastic equation."""
    process = VPSDE()
    model = mixture(process)
    for steps in (50, 200):
        x = reverse_sde_sample(
            model, (N, 1), process=process, steps=steps, predicts="noise", dtype=torch.float64,
            generator=dice(),
        )  # fmt: skip
        yield Entry("reverse equation", steps, error(x), True)
    for tol in (1e-2, 1e-5):
        counted = Counted(model)
        found = probability_flow(counted, quantiles(N), process=process, predicts="noise", tol=tol)
        yield Entry(f"probability flow, tol {tol:g}", counted.calls, error(found.x), False)
    levels = torch.linspace(1.0, 0.01, 20, dtype=torch.float64)
    x = annealed_langevin(
        model, torch.randn(N, 1, dtype=torch.float64, generator=dice()), process=process,
        levels=levels, per_level=20, predicts="noise", generator=dice(),
    )  # fmt: skip
    yield Entry("annealed Langevin, 20 levels", 400, error(x), True)


class Counted(torch.nn.Module):
    """A model that counts its calls."""

    def __init__(self, model: Callable[..., Tensor]):
        super().__init__()
        self.model, self.calls = model, 0

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        self.calls += 1
        return self.model(x, t)


def page() -> str:
    """The page."""
    lines = [
        "<!-- Generated by python -m bench.generative_samplers: edits here are lost. -->",
        "",
        "# Samplers against an exact mixture",
        "",
        "Data are a mixture of three normal laws, of which everything is known: the exact predictor"
        " (`MixtureScore`) stands in for a network, so that all error is the sampler's. It is the"
        " Wasserstein distance between the law of the samples and that of the data, whose standard"
        f" deviation is about 1. Samplers that add noise were run for {N:,} samples, which are"
        f" themselves up to {FLOOR} away from their law; the others are exact to the digits that"
        " are shown. Steps are even where nothing else is said; the second order calls the"
        " predictor as often as the first. To begin with noise costs about 0.0004 with the linear"
        " schedule, which keeps a little of the data to its last step.",
        "",
        "| sampler | steps | error |",
        "|---|--:|--:|",
    ]
    for entry in (*in_steps(), *in_few_steps(), *in_time()):
        shown = f"{entry.error:.2g}" if not entry.random or entry.error > FLOOR else f"< {FLOOR}"
        lines.append(f"| {entry.sampler} | {entry.steps:,} | {shown} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the page on samplers, or tell whether it is stale."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    given = parser.parse_args(arguments)
    text = page()
    fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
    if not given.check and not fresh:
        write_atomically(PAGE, text)
    print(f"{PAGE.name} is {'fresh' if fresh else 'stale' if given.check else 'written'}")
    return int(given.check and not fresh)


if __name__ == "__main__":
    sys.exit(main())
