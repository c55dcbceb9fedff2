"""Pictures of this room: penalties, a deep linear network that learns, principal components."""

from functools import cache, lru_cache
from typing import Annotated, Any, NamedTuple

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes
from torch import Tensor

from vademecum.canvas import GREY, legend_beside, panels, plain_numbers
from vademecum.data import load
from vademecum.linear import (
    PCA,
    LinearNetworkFlow,
    RidgeRegression,
    draw_modes,
    lasso_path,
    linear_network_flow,
)
from vademecum.pictures import Range, picture

__all__ = ["digits_rebuilt", "modes_while_training", "ridge_and_lasso_paths"]

ALPHAS = torch.logspace(0.5, -3, 71, dtype=torch.float64)


@picture(claims=("linear.ridge", "linear.lasso"))
def ridge_and_lasso_paths(
    alpha: Annotated[float, Range(0.001, 3.0, 2, log=True)] = 0.064,
    patients: Annotated[int, Range(20, 300, 10)] = 60,
) -> Figure:
    """Ridge and lasso paths.

    Ten measurements of diabetes patients, standardised, predict how far the disease has come a year
    later; each line is the weight of one. Both minimise half the mean squared error plus the
    penalty, α‖w‖²/2 or α‖w‖₁: ridge shrinks all weights, the lasso sets many to zero. With few
    patients, much of it pays.

    Knobs:
        alpha: How heavy the penalty is.
        patients: How many patients there are to learn from; the others are for validation.
    """
    chosen = int((ALPHAS - alpha).abs().argmin())
    options = {"sharex": True, "sharey": "row", "height_ratios": (3, 2)}
    margins, gaps = (0.85, 1.4, 0.5, 0.5), (0.15, 0.15)
    figure, grid = panels((8, 4.8), 2, 2, margins=margins, gaps=gaps, **options)
    for (top, bottom), (name, (w, train, held)) in zip(grid.T, paths(patients), strict=True):
        for i, feature in enumerate(diabetes().names):
            style = {"color": f"C{i % 5}", "ls": "-" if i < 5 else "--", "lw": 1.4}
            top.plot(ALPHAS, w[:, i], label=feature, **style)
        bottom.plot(ALPHAS, train, color=GREY, ls="--", label="training patients")
        bottom.plot(ALPHAS, held, color="C0", label="other patients\n(validation)")
        bottom.plot(ALPHAS[held.argmin()], held.min(), "o", color="C1", label="least")
        for axes in (top, bottom):
            axes.axvline(ALPHAS[chosen], color=GREY, lw=0.8)
        left = int((w[chosen].abs() > 1e-9).sum())
        title = f"{name}: {left} of 10 weights are not zero,\nvalidation error {held[chosen]:.3f}"
        top.set_title(title, fontsize=9)
        bottom.set(xscale="log", xlabel="penalty α", ylim=(0.2, 1.2))
        plain_numbers(bottom.xaxis)
    grid[0, 0].set_ylabel("weight")
    grid[1, 0].set_ylabel("squared error\n(variance = 1)")
    for axes in grid[:, 1]:
        legend_beside(axes)
    return figure


class Table(NamedTuple):
    """Measurements of 442 patients in random order, what came of them, and what was measured."""

    x: Tensor
    y: Tensor
    names: list[str]


@cache
def diabetes() -> Table:
    """The patients that come with scikit-learn."""
    table: Any = load_diabetes()
    order = torch.randperm(442, generator=torch.Generator().manual_seed(0))
    x, y = (torch.from_numpy(part)[order] for part in (table.data, table.target))
    return Table(x, y, table.feature_names)


@lru_cache(32)
def paths(patients: int) -> list[tuple[str, tuple[Tensor, Tensor, Tensor]]]:
    """The weights at every penalty, ridge and lasso, and their errors on these and on others."""
    x, y = ((v - v[:patients].mean(0)) / v[:patients].std(0) for v in diabetes()[:2])
    ridge = RidgeRegression(alphas=patients * ALPHAS).fit(x[:patients], y[:patients])
    lasso = lasso_path(x[:patients], y[:patients], alphas=ALPHAS)
    found = []
    for name, w in (("ridge", ridge.coef_path_), ("lasso", lasso.coefs)):
        error = (x @ w.T - y[:, None]).square()
        found.append((name, (w, error[:patients].mean(0), error[patients:].mean(0))))
    return found


@picture(claims=("linear.mode_dynamics", "linear.one_layer_flow"), plays="progress")
def modes_while_training(
    depth: Annotated[int, Range(1, 4)] = 3,
    scale: Annotated[float, Range(0.001, 0.1, 2, log=True)] = 0.008,
    gap: Annotated[float, Range(0.0, 0.25, 0.05)] = 0.2,
    noise: Annotated[float, Range(0.0, 0.05, 0.005)] = 0.01,
    progress: Annotated[int, Range(0, 100, 5, unit="%")] = 100,
) -> Figure:
    """A deep linear network learns mode by mode.

    Gradient descent (dots) over the solution of its flow (lines). One layer learns all modes at one
    rate; more layers learn strong modes first, the more so the smaller they start. The solution
    holds for weights that start balanced and aligned with the modes, which noise spoils.

    Knobs:
        depth: How many layers there are.
        scale: How strong every mode is at the start.
        gap: How far apart the singular values of the target are.
        noise: The standard deviation of what is added to the first weights.
        progress: How much of the training is done.
    """
    flow = learn(depth, scale, gap, noise)
    seen = flow.measured.clone()
    seen[1 + round(progress / 100 * (len(seen) - 1)) :] = torch.nan
    figure, axes = panels((8, 3.4), margins=(0.7, 1.0, 0.5, 0.3))
    draw_modes(flow._replace(measured=seen), axes)
    axes.set_title(axes.get_title(), fontsize=10)
    axes.set_ylim(-0.1, 1.1)
    legend_beside(axes)
    return figure


@lru_cache(64)
def learn(depth: int, scale: float, gap: float, noise: float) -> LinearNetworkFlow:
    """The strengths of four modes, predicted and measured, until the weakest is nearly learned."""
    s = 1 - gap * torch.arange(4, dtype=torch.float64)
    weakest = s[-1].item()
    a = torch.logspace(0, 1, 500, base=0.97 * weakest / scale, dtype=s.dtype) * scale
    end = torch.trapezoid(1 / (depth * a ** (2 - 2 / depth) * (weakest - a)), a).item()
    times = torch.linspace(0, end, 90, dtype=s.dtype)
    dice = torch.Generator().manual_seed(0)
    options = {"depth": depth, "strength": scale, "noise": noise, "generator": dice}
    return linear_network_flow(torch.diag(s), times, learning_rate=0.03, **options)


@picture(claims=("linear.autoencoder_pca", "linear.eckart_young"))
def digits_rebuilt(
    components: Annotated[int, Range(1, 64)] = 8,
    first: Annotated[int, Range(0, 300, 10)] = 0,
) -> Figure:
    """Principal components of digits.

    Written digits of 64 pixels (above), rebuilt from few numbers each (below): the mean digit and
    the directions in which digits vary most. A handful shows what digit it is, and 20 nearly all.

    Knobs:
        components: From how many numbers each digit is rebuilt.
        first: Which of the test digits is shown first.
    """
    pca, x = components_of_digits(), test_digits()[first : first + 10]
    axes = pca.components_[:components]
    rebuilt = pca.mean_ + (x - pca.mean_) @ axes.T @ axes
    figure, places = panels((8, 2.1), 2, margins=(0, 0, 0.1, 0.3), gaps=(0, 0.1))
    for place, images in zip(places, (x, rebuilt), strict=True):
        row = images.view(10, 8, 8).permute(1, 0, 2)
        row = torch.nn.functional.pad(row, (1, 1)).flatten(1)
        place.imshow(row.numpy(), cmap="gray_r", vmin=0, vmax=1)
        place.set_axis_off()
    share = pca.explained_variance_ratio_[:components].sum()
    keep = "keep" if components > 1 else "keeps"
    figure.suptitle(f"{components} of 64 components {keep} {share:.1%} of the variance")
    return figure


@cache
def components_of_digits() -> PCA:
    """All principal components of the training digits."""
    return PCA(64).fit(load("digits").x.flatten(1))


@cache
def test_digits() -> Tensor:
    """Digits that the components have not seen."""
    return load("digits", split="test").x.flatten(1)
