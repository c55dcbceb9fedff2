"""Wide networks: a tangent kernel that stays positive, and so a linear rate."""

from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.optimization import pl_constant


class TwoLayers(nn.Module):
    r"""$\frac1{\sqrt m} \sum_j a_j \tanh(w_j \cdot x)$."""

    def __init__(self, w: Tensor, a: Tensor) -> None:
        super().__init__()
        self.w, self.a = nn.Parameter(w), nn.Parameter(a)

    def forward(self, x: Tensor) -> Tensor:
        """One number for each row."""
        return (x @ self.w.T).tanh() @ self.a / len(self.a) ** 0.5


def half_squares(z: Tensor, y: Tensor) -> Tensor:
    """The loss."""
    return (z - y).square().sum() / 2


def network_jacobian(w: Tensor, a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Its values and its Jacobian in the parameters, w row by row and then a, by hand."""
    h, scale = (x @ w.T).tanh(), len(a) ** -0.5
    inner = (1 - h.square())[:, :, None] * a[:, None] * x[:, None, :]
    return scale * h @ a, scale * torch.cat([inner.flatten(1), h], 1)


@claim(
    by="training",
    sources=("D-065",),
    budget=0.8,
    full={"steps": 200},
    short=r"\tfrac12 \|\nabla \mathcal L\|^2 = \tfrac12 r^\top K r"
    r" \ge \lambda_{\min}(K)\, \mathcal L,\quad K = J J^\top",
)
def pl_overparameterised(
    width: int = 300, eigenvalue: Literal["least", "largest"] = "least", steps: int = 60
):
    r"""Over-parameterised networks are PL along training.

    For the loss $\mathcal L = \frac12 \|f(\theta) - y\|^2$ of $n$ outputs with residual
    $r = f(\theta) - y$, Jacobian $J$ and tangent kernel $K = J J^\top$:
    $\frac12 \|\nabla \mathcal L\|^2 = \frac12 r^\top K r \ge \lambda_{\min}(K)\, \mathcal L$. Wide
    networks keep $\lambda_{\min}(K)$ away from zero during training, so a local PL inequality
    explains their linear convergence without convexity.

    *Check.* Two layers of tanh units in the scaling of the tangent kernel, 10 points on the sphere
    in $\mathbb R^5$, random signs and normal numbers for targets, steps of size
    $1 / \lambda_{\max}(K_0)$. The identity and the inequality are exact; that
    $\lambda_{\min}(K_t) \ge \frac12 \lambda_{\min}(K_0)$ and that the loss halves is observed.

    Knobs:
        width: How many units there are.
        eigenvalue: Which eigenvalue of $K$ stands in the inequality.
        steps: How many steps are made.
    """
    n, d = 10, 5
    x = nn.functional.normalize(torch.randn(n, d), dim=1)
    for targets in ("signs", "normal"):
        y = torch.randn(n).sign() if targets == "signs" else torch.randn(n)
        w, a = torch.randn(width, d), torch.randn(width)
        z, J = network_jacobian(w, a, x)
        first = torch.linalg.eigvalsh(J @ J.T)
        positive = float(first[0] / first[-1])
        yield at_least("least eigenvalue over the largest", positive, 1e-9, tol=1e-15)
        eta, losses, least, halves, bounds = 1 / first[-1], [], [], [], []
        for step in range(steps):
            z, J = network_jacobian(w, a, x)
            r = z - y
            slope, loss = r @ J, r @ r / 2
            values = torch.linalg.eigvalsh(J @ J.T)
            bounds.append(values[0 if eigenvalue == "least" else -1] * loss)
            halves.append(slope @ slope / 2)
            if step % 20 == 0:
                found = pl_constant(TwoLayers(w, a), x, y, loss=half_squares)
                half = r @ (J @ J.T) @ r / 2
                yield equals("half the squared gradient", found.squared_norm / 2, half, t=step)
                yield equals("its ratio to the loss", found.value, half / loss, t=step)
            losses.append(loss)
            least.append(values[0])
            w = w - eta * slope[:-width].view(width, d)
            a = a - eta * slope[-width:]
        name = "half the squared gradient"
        yield at_least(name, torch.stack(halves), torch.stack(bounds), y=targets)
        low = torch.stack(least) / first[0]
        yield at_least("least eigenvalue over that at the start", low, 0.5, y=targets)
        yield at_most("loss at the end over that at the start", losses[-1] / losses[0], 0.5)


pl_overparameterised.foil(
    "a single unit has fewer parameters than there are points",
    refuted_by="least eigenvalue over the largest",
    width=1,
)
pl_overparameterised.foil(
    r"$\lambda_{\max}$ in the place of $\lambda_{\min}$",
    refuted_by="half the squared gradient",
    eigenvalue="largest",
)
