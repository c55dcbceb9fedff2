"""What minima look like: their sharpness, and what it does not say."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.generalization import sharpness_measures
from vademecum.regularization import rescale_units

TIGHT: Any = {"tol": 1e-9}  # residual over the largest eigenvalue: its error goes with the square


def half_square(z: Tensor, y: Tensor) -> Tensor:
    """Half the sum of squares."""
    return (z - y).square().sum() / 2


def two_layers(d: int, m: int, k: int, phi: nn.Module) -> Any:
    """A small network, none of whose weights is nearly zero."""
    model = nn.Sequential(nn.Linear(d, m), phi, nn.Linear(m, k))
    for p in model.parameters():
        p.data = torch.randn(p.shape)
        p.data += 0.2 * p.data.sign()
    return model


def formula(
    theta: Tensor, x: Tensor, sizes: tuple[int, int, int], phi: Callable[[Tensor], Tensor]
) -> Tensor:
    """The network by its formula, of all parameters in one vector."""
    d, m, k = sizes
    W, b, V, c = theta.split([m * d, m, k * m, k])
    return phi(x @ W.view(m, d).T + b) @ V.view(k, m).T + c


def dense(model: Any, x: Tensor, y: Tensor, phi: Callable[[Tensor], Tensor]) -> Any:
    """All parameters, and the matrix of second derivatives of half the squares."""
    sizes = model[0].in_features, model[0].out_features, model[2].out_features
    theta = torch.cat([p.detach().flatten() for p in model.parameters()])

    def loss(v: Tensor) -> Tensor:
        return half_square(formula(v, x, sizes, phi), y)

    return theta, torch.as_tensor(torch.autograd.functional.hessian(loss, theta)), loss


def row_norms(model: Any) -> Tensor:
    """For each entry the norm of the row that it stands in; a bias is one row."""
    entries = []
    for p in model.parameters():
        rows = p.detach().tolist() if p.ndim > 1 else [p.detach().tolist()]
        for row in rows:
            entries += [sum(v * v for v in row) ** 0.5] * len(row)
    return torch.tensor(entries)


@claim(
    by="identity", sources=("C-286",), budget=0.9,
    short=r"\lambda_{\max}(\nabla^2 L) = \max_{\|v\| = 1} v^\top H v,\quad"
    r" \eta \le 2 / \lambda_{\max}",
)  # fmt: skip
def sharpness(
    threshold: float = 2.0, of: Literal["eigenvalue", "diagonal"] = "eigenvalue"
) -> Iterator[Evidence]:
    r"""Sharpness, and the step size that it allows.

    The sharpness of a minimum is the largest eigenvalue $\lambda_{\max}$ of the loss's Hessian.
    Near the minimum gradient descent multiplies the component of the error along its eigenvector by
    $1 - \eta \lambda_{\max}$ in each step, so it is locally stable only if $\lambda_{\max} \le 2
    / \eta$. It is computed from products with the Hessian, which is never formed.

    `sharpness_measures` against the matrix of second derivatives of the network's formula, at a
    minimum and elsewhere, for two tanh networks; its filter-normalised and adaptive values are the
    largest eigenvalues of $T H T$ with the norms of rows, or the sizes of entries, on the diagonal
    of $T$. The steps are made on the quadratic of a linear model, for 300 steps, and near the
    minimum of the networks for 20.

    Knobs:
        threshold: The number over $\lambda_{\max}$ that divides stable steps from others.
        of: What the sharpness is said to be: the largest eigenvalue, or the largest entry of the
            diagonal.
    """
    for d, m, k, n in ((5, 6, 2, 30), (3, 9, 1, 12)):
        model, x = two_layers(d, m, k, nn.Tanh()), torch.randn(n, d)
        best = model(x).detach()
        for place, y in (("at a minimum", best), ("elsewhere", best + torch.randn(n, k))):
            theta, H, loss = dense(model, x, y, torch.tanh)
            found = sharpness_measures(model, x, y, loss=half_square, **TIGHT)
            at = dict[str, Any](parameters=len(theta), place=place)
            units = {"plain": torch.ones_like(theta), "filter_normalised": row_norms(model)}
            units["adaptive"] = theta.abs()
            for name, s in units.items():
                A = s[:, None] * H * s
                top = torch.linalg.eigvalsh(A)[-1] if of == "eigenvalue" else A.diagonal().max()
                ratio = getattr(found, name) / float(top)
                yield equals("sharpness over that stated", ratio, 1.0, tol=1e-8, kind=name, **at)
            if place == "at a minimum":
                yield from near_minimum(found.plain, theta, H, loss, threshold)
    for n, d in ((9, 4), (12, 7)):
        model, X = nn.Linear(d, 1, bias=False), torch.randn(n, d)
        y = X @ model.weight.detach().T
        lam = sharpness_measures(model, X, y, loss=half_square, **TIGHT).plain
        for share in (0.995, 1.005):
            yield from on_quadratic(X, share * threshold / lam, share, d)


def near_minimum(
    lam: float, theta: Tensor, H: Tensor, loss: Callable[[Tensor], Tensor], threshold: float
) -> Iterator[Evidence]:
    """Twenty steps from a millionth off a minimum, along the sharpest direction.

    Third derivatives change a step by some millionths of it, so 1e-3 is ample for twenty.
    """
    v = torch.linalg.eigh(H)[1][:, -1]
    for share in (0.95, 1.05):
        w, eta = theta + 1e-6 * v, share * threshold / lam
        for _ in range(20):
            w = w - eta * torch.func.grad(loss)(w)
        grown, at = float((w - theta) @ v) / 1e-6, dict[str, Any](share=share, P=len(theta))
        wanted = (1 - share * threshold) ** 20
        yield equals("error along the sharpest direction after 20 steps, over its power",
                     grown / wanted, 1.0, tol=1e-3, **at)  # fmt: skip
        compare = at_most if share < 1 else at_least
        yield compare("size of that error over the first", abs(grown), 1.0, tol=0.0, **at)


def on_quadratic(X: Tensor, eta: float, share: float, d: int) -> Iterator[Evidence]:
    """Gradient descent on half the squares of a linear model, from all directions at once."""
    H = X.T @ X
    error = torch.linalg.eigh(H)[1].sum(1)  # 1 along each eigenvector
    for _ in range(300):
        error = error - eta * (H @ error)
    top = abs(float(error @ torch.linalg.eigh(H)[1][:, -1]))
    compare = at_most if share < 1 else at_least
    at = dict[str, Any](share=share, d=d)
    yield compare("error of a linear model after 300 steps", top, 1.0, tol=0.0, **at)


sharpness.foil(
    r"steps beyond $1 / \lambda_{\max}$ diverge",
    refuted_by="error of a linear model after 300 steps",
    threshold=1.0,
)
sharpness.foil(
    r"steps up to $4 / \lambda_{\max}$ are stable",
    refuted_by="error of a linear model after 300 steps",
    threshold=4.0,
)
sharpness.foil("the largest second derivative along an axis", of="diagonal")


@claim(
    by="identity", sources=("C-287",), budget=0.9,
    short=r"\alpha a (\tfrac b\alpha x)_+ = a (b x)_+; \tfrac12 (f(1) - 1)^2,"
    r" ab = 1: \lambda_{\max} = \alpha^2 a^2 + b^2/\alpha^2",
)  # fmt: skip
def sharpness_not_invariant(
    measure: Literal["adaptive", "plain", "filter_normalised"] = "adaptive",
    implication: bool = False,
    power: int = 2,
) -> Iterator[Evidence]:
    r"""Flatness alone does not determine generalisation.

    In experiments flat minima go with a small test error, but plain sharpness is no property of
    the function: for positively homogeneous networks $(W_1, b_1, W_2) \mapsto (\alpha W_1, \alpha
    b_1, W_2 / \alpha)$, $\alpha > 0$, leaves the function and so its test error unchanged, while
    $\lambda_{\max} \ge \alpha^2 \lambda_{\max}(H_{22})$ grows without bound, with $H_{22}$ the
    Hessian in $W_2$. For $f(x) = a\, (b x)_+$ with the loss $\frac12 (f(1) - 1)^2$ at $a b = 1$ it
    is $a^2 + b^2$. The adaptive sharpness is the same after any such change, also with a factor for
    each unit; the filter-normalised one after a change of whole layers.

    The scales are set by `rescale_units`; outputs by the network's formula. Checked for $\alpha =
    1, 10, 100$ and two sizes.

    Knobs:
        measure: Which sharpness is said to be a property of the function.
        implication: Whether a sharper minimum is said to have the larger test error.
        power: The power of $a$ and $b$ in the eigenvalue.
    """
    one: Any = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
    b = 0.5 + float(torch.rand(()))
    one[0].weight.data.fill_(b)
    one[2].weight.data.fill_(1 / b)
    x = torch.ones(1, 1)
    for alpha in (1.0, 10.0, 100.0):
        other = rescale_units(one, x, scales={"0": torch.tensor([1 / alpha])}).model
        found = sharpness_measures(other, x, x, loss=half_square, **TIGHT)
        stated = (alpha / b) ** power + (b / alpha) ** power
        yield equals("largest eigenvalue over that stated", found.plain / stated, 1.0,
                     tol=1e-9, alpha=alpha)  # fmt: skip
        yield equals("adaptive sharpness at a b = 1", found.adaptive, 2.0, tol=1e-8, alpha=alpha)
    for d, m, k, n in ((3, 5, 2, 40), (4, 8, 1, 25)):
        yield from rescaled(d, m, k, n, measure, implication=implication)


def rescaled(
    d: int, m: int, k: int, n: int, measure: str, *, implication: bool
) -> Iterator[Evidence]:
    """A network with its first layer multiplied and the second divided, and units one by one."""
    model, x = two_layers(d, m, k, nn.ReLU()), torch.randn(n, d)
    y, new = model(x).detach() + 0.1 * torch.randn(n, k), torch.randn(1000, d)
    truth = (model(new).detach() + torch.randn(1000, k)).sign()
    theta, H, _ = dense(model, x, y, torch.relu)
    readout = slice(d * m + m, d * m + m + m * k)
    bottom = float(torch.linalg.eigvalsh(H[readout, readout])[-1])
    first = sharpness_measures(model, x, y, loss=half_square, **TIGHT)
    z = formula(theta, new, (d, m, k), torch.relu)
    wrong = int((z.sign() != truth).sum())
    changes = {f"{alpha:g}": torch.full((m,), alpha) for alpha in (10.0, 100.0)}
    changes["by units"] = 2 + 3 * torch.rand(m)
    for name, scales in changes.items():
        other: Any = rescale_units(model, x[:1], scales={"0": scales}).model
        found = sharpness_measures(other, x, y, loss=half_square, **TIGHT)
        moved = torch.cat([p.detach().flatten() for p in other.parameters()])
        z_c, at = formula(moved, new, (d, m, k), torch.relu), dict[str, Any](scales=name, m=m)
        yield equals("outputs of the rescaled network", z_c, z, tol=1e-10, **at)
        change = int((z_c.sign() != truth).sum()) - wrong
        sign = int(found.plain > first.plain) if implication and name != "by units" else 0
        yield equals("sign of the change of test errors", (change > 0) - (change < 0), sign, **at)
        kept = getattr(found, measure) / getattr(first, measure)
        yield equals("sharpness of the function, over that before", kept, 1.0, tol=1e-7, **at)
        if name == "by units":
            gap = abs(found.filter_normalised / first.filter_normalised - 1)
            yield at_least("change of the filter-normalised sharpness", gap, 1e-6, **at)
            continue
        by_filter = found.filter_normalised / first.filter_normalised
        yield equals("filter-normalised sharpness, over that before", by_filter, 1.0,
                     tol=1e-7, **at)  # fmt: skip
        least = float(scales[0]) ** 2 * bottom
        yield at_least("plain sharpness over its bound", found.plain / least, 1.0, tol=1e-9, **at)


sharpness_not_invariant.foil("plain sharpness is a property of the function", measure="plain")
sharpness_not_invariant.foil(
    "so is the filter-normalised one, whatever the units' scales",
    refuted_by="sharpness of the function, over that before",
    measure="filter_normalised",
)
sharpness_not_invariant.foil(r"the eigenvalue is $a + b$", power=1)
sharpness_not_invariant.erratum(
    "C-287",
    printed=r"Flat minima $\rightarrow$ better generalization.",
    right="Flat minima go with better generalisation in experiments; neither implies the other.",
    why=r"As an implication it is false: with $\alpha W_1$ and $W_2 / \alpha$ the function and its"
    " test errors are the same, where the largest eigenvalue is many times as large.",
    weight="soft",
    refuted_by="sign of the change of test errors",
    implication=True,
)
