"""The noise of gradients: of drawn examples one by one, and in batches."""

from fractions import Fraction
from functools import partial
from itertools import combinations, product

import torch

from vademecum.claims import at_least, claim, equals, integers, lowest
from vademecum.gradients import per_example_gradients
from vademecum.optimization import gradient_covariance
from vademecum.optimization.claims._fractions import (
    exactly,
    half_square,
    less,
    line,
    mean,
    slopes,
    square,
)


@claim(
    by="identity",
    sources=("B-228", "C-095"),
    budget=0.3,
    full={"s": 50},
    short=r"V(\theta) = \tfrac1s \sum_i \|\nabla f_i - \nabla f\|^2"
    r" = \tfrac1s \sum_i \|\nabla f_i\|^2 - \|\nabla f\|^2",
)
def gradient_variance(correction: int = 0, squared: bool = True, s: int = 6):
    r"""The variance of the stochastic gradient.

    $V(\theta) = \frac1s \sum_i \|\nabla f_i(\theta) - \nabla f(\theta)\|^2 = \frac1s \sum_i
    \|\nabla f_i(\theta)\|^2 - \|\nabla f(\theta)\|^2$, the trace of the covariance of the
    single-example gradients; it vanishes where all examples agree, e.g. at an interpolating
    solution.

    *Check.* Integer least squares: both expressions by hand, in fractions, and the trace of the
    covariance that `gradient_covariance` gives, in one and in three dimensions.

    Knobs:
        correction: What is subtracted from the divisor $s$ of the first expression.
        squared: Whether the norms in it are squared.
        s: How many examples there are.
    """
    lowest("s", s, 4)
    for d in (1, 3):
        x, fit = integers(s, d), integers(d)
        x[0] = 1 + x[0].abs()  # so that an error of the target is felt
        for noise in (0, 2):
            y = x @ fit
            y[0] += noise
            terms, at = slopes(x, y, fit), {"noise": noise, "d": d}
            full = mean(terms)
            sizes = [square(less(g, full)) for g in terms]
            spread = float(sum(sizes, Fraction(0)) / (s - correction))
            if not squared:
                spread = sum(float(v) ** 0.5 for v in sizes) / (s - correction)
            moment = sum(map(square, terms), Fraction(0)) / s - square(full)
            model = line(fit)
            C = gradient_covariance(model, x, y[:, None], loss=half_square).dense()
            outer = [
                [float(a * b) for b in g] for g in map(partial(less, v=full), terms) for a in g
            ]
            exact = torch.tensor(outer).view(s, d, d).mean(0)
            yield equals("variance by deviations", spread, float(moment), **at)
            yield equals("trace of the covariance", C.trace(), float(moment), **at)
            yield equals("entries of the covariance", C, exact, **at)
            if noise:
                yield at_least("variance of noisy targets", float(moment), 1 / s, **at)
            else:
                yield equals("variance at an exact fit", float(moment), 0.0, **at)


gradient_variance.foil("the divisor $s - 1$", correction=1)
gradient_variance.foil("norms without their squares", squared=False)


@claim(
    by="identity",
    sources=("B-230", "B-232", "D-155"),
    budget=0.4,
    full={"s": 6},
    short=r"V / r \text{ with replacement},\quad"
    r" \tfrac Vr\, \tfrac{s - r}{s - 1} \text{ without}",
)
def minibatch_variance(power: int = 1, corrected: bool = True, s: int = 5):
    r"""Batch size and gradient noise.

    A mini-batch of $r$ examples has gradient variance exactly $V / r$ when sampled with replacement
    and $\frac Vr\, \frac{s - r}{s - 1}$ without. (That larger batches cost proportionally more, and
    are bounded by memory and parallelism, is quoted.)

    *Check.* All ordered tuples and all subsets of $s$ examples of integer least squares, with the
    gradients of `per_example_gradients`, in fractions; $r = s$ without replacement has no variance.

    Knobs:
        power: The power of $r$ below the line.
        corrected: Whether sampling without replacement has its factor.
        s: How many examples there are.
    """
    lowest("s", s, 3)
    for d in (1, 2):
        x, theta = integers(s, d), integers(d)
        x[:2] = 1.0  # so that the gradients differ
        y = x @ theta - torch.arange(1.0, s + 1)
        rows = per_example_gradients(line(theta), x, y[:, None], loss=half_square)
        terms, full = [exactly(g) for g in rows], mean(slopes(x, y, theta))
        V = sum((square(less(g, full)) for g in terms), Fraction(0)) / s
        for r in (1, 2, 3, s):
            rest = Fraction(s - r, s - 1) if corrected else Fraction(1)
            tuples = product(range(s), repeat=r) if r < s else ()
            ways = (("subsets", combinations(range(s), r), rest), ("tuples", tuples, Fraction(1)))
            for kind, batches, share in ways if r < s else ways[:1]:
                spreads = [square(less(mean([terms[i] for i in b]), full)) for b in batches]
                found, at = sum(spreads, Fraction(0)) / len(spreads) / V, {"r": r, "over": kind}
                stated = share / r**power
                yield equals("variance of a batch over V", float(found), float(stated), **at, d=d)
                off = (found - stated).numerator
                yield equals("numerator of the difference in fractions", off, 0, **at, d=d)


minibatch_variance.foil("$V / r^2$", power=2)
minibatch_variance.foil("$V / r$ without replacement, too", corrected=False)
