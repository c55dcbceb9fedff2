"""The ball of noise in which stochastic gradient descent ends."""

from typing import Annotated

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from scipy.signal import lfilter

from vademecum.canvas import GREY, panels, plain_numbers
from vademecum.pictures import Range, picture

__all__ = ["noise_ball"]

CURVATURES, START = np.array([1.0, 0.25]), np.array([3.0, 2.0])
STEPS, RUNS = np.geomspace(0.01, 1.6, 25), 8


@picture(
    claims=("optimization.noise_floor", "optimization.sgd_constant_step",
            "optimization.polyak_averaging", "optimization.minibatch_variance"),
)  # fmt: skip
def noise_ball(
    step: Annotated[float, Range(0.01, 1.6, 2**0.5, log=True)] = 0.16,
    batch: Annotated[int, Range(1, 64, 2, log=True)] = 1,
    iterations: Annotated[int, Range(250, 4000, 2, log=True)] = 1000,
    averaging: bool = True,
) -> Figure:
    """SGD's ball of noise.

    Stochastic gradient descent on a bowl, four times as steep to the right as upwards. With a
    constant step it comes near the minimum soon and then wanders about in a ball of noise, whose
    size is proportional to the step, and inversely to the batch. The mean of all iterates does not
    stay there: give it more iterations. Short steps take long to arrive, and so does their mean.
    To the left one run, to the right means over eight.

    Knobs:
        step: The step size.
        batch: How many examples each gradient is the mean of.
        iterations: How many steps are made.
        averaging: Whether the mean of the iterates is drawn, too.
    """
    figure, (plane, sizes) = panels((8, 3.8), 1, 2, margins=(0.6, 0.15, 0.5, 0.4), gaps=(0.9, 0))
    dice = np.random.default_rng(0)
    noise = dice.standard_normal((iterations, RUNS, 2)) / batch**0.5
    paths = {eta: walks(eta, noise) for eta in (step, *STEPS)}
    draw_plane(plane, paths[step][:, 0], step, 1 / batch, averaging=averaging)
    draw_sizes(sizes, {eta: paths[eta] for eta in STEPS}, 1 / batch, averaging=averaging)
    late, mean = late_square(paths[step]), mean_square(paths[step])
    sizes.plot(step, late, "o", ms=8, mfc="none", color="C0")
    words = f"{iterations} steps of {step:.3g}: the mean squared distance is {late:.2g} in the end"
    if averaging:
        sizes.plot(step, mean, "s", ms=8, mfc="none", color="C1")
        words += f", of the mean {mean:.2g}"
    figure.suptitle(words)
    return figure


def walks(eta: float, noise: np.ndarray) -> np.ndarray:
    """The iterates of SGD with these gradient noises, some runs: a recursion of order one."""
    start = np.broadcast_to(START, (1, *noise.shape[1:]))
    pushes = np.concatenate([start, -eta * noise])
    axes = [
        lfilter([1.0], [1.0, eta * a - 1], pushes[..., j], axis=0) for j, a in enumerate(CURVATURES)
    ]
    return np.stack(axes, -1)


def late_square(paths: np.ndarray) -> float:
    """The mean squared distance to the minimum in the second half of the runs."""
    return np.square(paths[len(paths) // 2 :]).sum(-1).mean()


def mean_square(paths: np.ndarray) -> float:
    """The mean squared distance of the means of the runs."""
    return np.square(paths.mean(0)).sum(-1).mean()


def floor(eta: float | np.ndarray, variance: float) -> np.ndarray:
    """The stationary variances of both coordinates."""
    eta = np.asarray(eta)[..., None]
    return eta * variance / (CURVATURES * (2 - eta * CURVATURES))


def draw_plane(
    axes: Axes, path: np.ndarray, step: float, variance: float, *, averaging: bool
) -> None:
    """The iterates over the level lines, and the ball of two standard deviations."""
    reach = 3.6
    side = np.linspace(-reach, reach, 60)
    height = (CURVATURES[0] * side**2 + CURVATURES[1] * side[:, None] ** 2) / 2
    axes.contour(side, side, height, levels=8, colors=GREY, linewidths=0.4)
    shown = path[:: max(1, len(path) // 400)]
    axes.plot(*path[:60].T, "-", lw=0.6, color="C0", alpha=0.7)
    axes.plot(*shown.T, ".", ms=2, color="C0", alpha=0.5, label="iterates")
    width, height_of = 4 * np.sqrt(floor(step, variance))
    axes.add_patch(Ellipse((0, 0), width, height_of, fill=False, ls="--", ec="C2", lw=1.2))
    if averaging:
        means = path.cumsum(0) / np.arange(1, len(path) + 1)[:, None]
        axes.plot(
            *means[:: max(1, len(path) // 200)].T, "-", lw=1.4, color="C1", label="their mean"
        )
        axes.plot(*means[-1], "s", ms=5, color="C1")
    axes.plot([], [], "--", color="C2", label="two deviations")
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xlabel="steep", ylabel="flat")
    axes.legend(loc="lower right")


def draw_sizes(
    axes: Axes, paths: dict[float, np.ndarray], variance: float, *, averaging: bool
) -> None:
    """Mean squared distances over step sizes: measured, exact, and the limit of the bound."""
    late = [late_square(path) for path in paths.values()]
    axes.plot(STEPS, late, "o", ms=3, color="C0", label="iterates, second half")
    axes.plot(STEPS, floor(STEPS, variance).sum(1), "--", lw=1.2, color="C2", label="noise floor")
    mu, top = CURVATURES.min(), CURVATURES.max()
    short = STEPS[0.95 / top > STEPS]
    bound = short * 2 * variance / (mu * (1 - short * top))
    axes.plot(short, bound, ":", lw=1.2, color=GREY, label="limit of the bound")
    if averaging:
        means = [mean_square(path) for path in paths.values()]
        axes.plot(STEPS, means, "s", ms=3, color="C1", label="mean of the iterates")
    axes.set(xscale="log", yscale="log", xlabel="step size", ylabel="squared distance")
    axes.set(xlim=(0.008, 2), ylim=(3e-5, 300))
    plain_numbers(axes.xaxis)
    plain_numbers(axes.yaxis)
    axes.legend(loc="upper left")
