r"""Two dossiers side by side: what differs, by how much, and whether that is more than chance.

Where both saw the same examples in the same order, differences $d_i = b_i - a_i$ of single examples
are compared: for right and wrong answers by the exact sign test of the examples that they do not
share (McNemar), with Tango's score interval and a correction for continuity of one example, which
makes it cover in at least 95 % (enumerated; without it, 83 %); for numbers by Student's $t$. Where they did not,
errors add up as $\sqrt{e_a^2 + e_b^2}$, of intervals half their length over 1.96. Holm's correction is over all
tests of the table: the chance of any false difference among them is at most 5 %. What has no error
is told without a test; so is what has but that of arithmetic (`Measurement.error_of`), as an
eigenvalue has, where examples are not the same, of which it says nothing; and what has a spread in
place of an error.

References:
    Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of
    Statistics, 1979.
    McNemar, Note on the sampling error of the difference between correlated proportions or
    percentages, Psychometrika, 1947.
    Tango, Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design, Statistics in Medicine, 1998.
"""  # noqa: E501

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from vademecum.examine.dossier import Dossier, Measurement, Section
from vademecum.results import one_line

__all__ = ["Comparison", "Difference", "compare", "holm"]

_LEVEL = 0.05
_NORMAL = 1.959963985  # two-sided, 95 %


class Difference(NamedTuple):
    """One number of two dossiers.

    Example:
        >>> Difference("calibration", "brier", 0.5, 0.4, -0.1, None, None, None, "b is smaller").b
        0.4
    """

    section: str
    name: str
    a: float
    b: float
    difference: float
    """b minus a."""
    interval: tuple[float, float] | None
    """Of the difference, at 95 %, by itself; None where no error is known."""
    p: float | None
    """How likely so large a difference is by chance, corrected by Holm over the table."""
    pairs: int | None
    """How many examples were compared one by one; None where the two errors were combined."""
    verdict: str
    """What it comes to, in words."""

    __repr__ = one_line


class Comparison(NamedTuple):
    """Two dossiers side by side.

    Example:
        >>> Comparison((), "other examples").verdict
        'Nothing was measured in both.'
    """

    rows: tuple[Difference, ...]
    """What both have measured, in the order of the dossier."""
    examples: str
    """Whether they saw the same examples, in words."""

    __repr__ = one_line

    @property
    def verdict(self) -> str:
        """All of it in a sentence."""
        if not self.rows:
            return "Nothing was measured in both."
        tested = [row for row in self.rows if row.p is not None]
        apart = [row for row in tested if row.p is not None and row.p < _LEVEL]
        if not apart:
            return f"Equal within error in all of {len(tested)} numbers that have one."
        names = ", ".join(f"{row.section}.{row.name}" for row in apart[:5])
        more = f" and {len(apart) - 5} more" if len(apart) > 5 else ""
        return (
            f"Different in {len(apart)} of {len(tested)} numbers that have an error: {names}{more}."
        )

    def table(self) -> str:
        """The rows as lines of text."""
        head = ("measurement", "a", "b", "difference", "interval of 95 %", "p (Holm)", "verdict")
        lines = [head, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


class _Test(NamedTuple):
    """A difference with its interval and chance, before it is corrected."""

    difference: float
    interval: tuple[float, float] | None
    p: float | None
    pairs: int | None


def compare(a: Dossier, b: Dossier) -> Comparison:
    """Lay two dossiers side by side.

    Args:
        a: One dossier.
        b: The other one, of another network or of the same one later.

    Example:
        >>> one, other = (
        ...     Dossier((Section("calibration", "measured", (Measurement("brier", v, 0.1),)),))
        ...     for v in (0.5, 0.55)
        ... )
        >>> compare(one, other).rows[0].verdict
        'equal within error'
    """
    marks = [d.environment.get("examples_mark") for d in (a, b)]
    seeds = [d.environment.get("seed") for d in (a, b)]
    same = marks[0] is not None and marks[0] == marks[1]
    paired = same and seeds[0] == seeds[1]
    given = {mark.partition("-")[0] if mark else None for mark in marks}
    words = "other examples"
    if same:
        words = "the same examples" if paired else "the same examples, in another order"
    elif len(given) == 1 and None not in given:
        words = "the same examples, but not the same fresh ones"
    found = [
        (section.name, one, other, _tested(one, other, paired=paired))
        for section in a.sections if section.name in b
        for one, other in _common(section, b[section.name])
    ]  # fmt: skip
    corrected = iter(holm([t.p for *_, t in found if t.p is not None]))
    rows = [_row(where, one, other, test, corrected) for where, one, other, test in found]
    return Comparison(tuple(rows), words)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's correction: the k-th smallest of m times m - k + 1, never falling, at most 1.

    Args:
        p: The chances of single tests.

    Example:
        >>> holm([0.04, 0.01, 0.02])
        [0.04, 0.03, 0.04]
    """
    found, largest = [0.0] * len(p), 0.0
    for k, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        largest = max(largest, min(1.0, (len(p) - k) * p[i]))
        found[i] = largest
    return found


def _common(a: Section, b: Section) -> Iterator[tuple[Measurement, Measurement]]:
    """The single numbers that both sections have."""
    for one in a.measurements:
        if one.name in b and _is_number(one.value) and _is_number(b[one.name].value):
            yield one, b[one.name]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _tested(a: Measurement, b: Measurement, *, paired: bool) -> _Test:
    gap = float(b.value) - float(a.value)  # pyright: ignore
    kinds = {a.error_of, b.error_of}
    if "spread" in kinds or ("arithmetic" in kinds and not (paired and a.n == b.n)):
        return _Test(gap, None, None, None)
    if paired and len(a.each) == len(b.each) > 1:
        pairs = np.subtract(b.each, a.each)
        if np.isfinite(pairs).all():
            binary = set(a.each) | set(b.each) <= {0.0, 1.0}
            size = max(map(abs, (*a.each, *b.each)))
            means = abs(gap - pairs.mean()) <= 1e-6 * size  # which are kept in nine digits
            if means:
                return _signs(gap, pairs) if binary else _student(gap, pairs)
    errors = [_standard_error(m) for m in (a, b)]
    if errors[0] is None and errors[1] is None:
        return _Test(gap, None, None, None)
    size = math.hypot(*(error or 0.0 for error in errors))
    if not math.isfinite(size):
        return _Test(gap, None, None, None)
    interval = (gap - 1.96 * size, gap + 1.96 * size)
    p = float(2 * stats.norm.sf(abs(gap) / size)) if size else float(gap == 0)
    return _Test(gap, interval, p, None)


def _signs(gap: float, pairs: np.ndarray) -> _Test:
    """The exact test of examples on which the two differ, and an interval for how often."""
    n, more, less = len(pairs), int((pairs > 0).sum()), int((pairs < 0).sum())
    p = float(stats.binomtest(more, more + less).pvalue) if more + less else 1.0
    ends = (_score_end(more, less, n, side) for side in (1, -1))
    return _Test(gap if more + less else 0.0, tuple(ends), p, n)  # pyright: ignore


def _score_end(more: int, less: int, n: int, side: int) -> float:
    """The difference of shares from which what was seen, less one example, is 1.96 spreads away."""
    seen = (more - less) / n
    low, high = (-1.0, seen) if side > 0 else (seen, 1.0)
    for _ in range(60):
        middle = (low + high) / 2
        far = side * _score(more, less, n, middle, side) > _NORMAL
        low, high = (middle, high) if far == (side > 0) else (low, middle)
    return (low + high) / 2


def _score(more: int, less: int, n: int, d: float, spared: int) -> float:
    """How many spreads more - less - spared is above n d, where the likeliest shares differ by d.

    More minus less goes in steps of two where all examples differ: half a step is `spared`.
    """
    half = n + (less - more) / 2
    b, c = half * d - (more + less) / 2, less * d * (1 - d)
    share = (math.sqrt(max(b * b + 2 * n * c, 0.0)) - b) / (2 * n)  # of `less`, for this d
    variance, above = n * (2 * share + d * (1 - d)), more - less - spared - n * d
    return above / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, above)


def _student(gap: float, pairs: np.ndarray) -> _Test:
    n = len(pairs)
    size = float(pairs.std(ddof=1)) / math.sqrt(n)
    if size == 0:
        return _Test(gap, (gap, gap), float(gap == 0), n)
    reach = float(stats.t.ppf(0.975, n - 1)) * size
    return _Test(gap, (gap - reach, gap + reach), float(2 * stats.t.sf(abs(gap) / size, n - 1)), n)


def _standard_error(measurement: Measurement) -> float | None:
    error = measurement.error
    return (error[1] - error[0]) / 3.92 if isinstance(error, tuple) else error


def _row(
    section: str, a: Measurement, b: Measurement, test: _Test, corrected: Iterator[float]
) -> Difference:
    p = None if test.p is None else next(corrected)
    larger = "b is larger" if test.difference > 0 else "b is smaller"
    if test.difference == 0:
        verdict = "equal" if p is None else "equal within error"
    elif p is None:
        counts = isinstance(a.value, int) and isinstance(b.value, int)  # which are exact
        verdict = larger if counts else f"{larger}, and no error is known"
    else:
        verdict = larger if p < _LEVEL else "equal within error"
    return Difference(
        section, a.name, float(a.value), float(b.value), test.difference, test.interval,  # pyright: ignore
        p, test.pairs, verdict,
    )  # fmt: skip


def _cells(row: Difference) -> tuple[str, ...]:
    interval = "" if row.interval is None else f"{row.interval[0]:.3g} to {row.interval[1]:.3g}"
    pairs = f" ({row.pairs} pairs)" if row.pairs else ""
    p = "" if row.p is None else f"{row.p:.2g}"
    numbers = (f"{value:.4g}" for value in (row.a, row.b, row.difference))
    return (f"{row.section}.{row.name}", *numbers, interval, p, row.verdict + pairs)
