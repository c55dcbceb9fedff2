"""Steps of their own for each coordinate: what they ignore, and what they depend on."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vademecum.claims import at_least, claim, equals
from vademecum.optimization import HeavyBall
from vademecum.optimization.claims._recorded import recorded


class SharedAdagrad(torch.optim.Optimizer):
    """AdaGrad with one accumulator for all coordinates, as a foil."""

    def __init__(self, params: list[Tensor]):
        super().__init__(params, {})
        self.total = 0.0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore
        """Take a step."""
        for p in self.param_groups[0]["params"]:
            self.total += float(p.grad @ p.grad)
            p -= 0.5 * p.grad / self.total**0.5


METHODS: dict[str, Callable[[list[Tensor]], Any]] = {
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.5, eps=0.0),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.05, alpha=0.9, eps=0.0),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.05, eps=0.0),
    "gradient descent": lambda p: torch.optim.SGD(p, lr=0.05),
    "heavy ball": lambda p: HeavyBall(p, lr=0.05, momentum=0.8),
    "shared Adagrad": SharedAdagrad,
}


@claim(
    by="identity",
    sources=("B-245", "D-055", "D-172"),
    budget=0.8,
    full={"steps": 500},
    short=r"\epsilon = 0: \text{ AdaGrad, RMSProp, Adam on } \sum_i c_i"
    r" \varphi_i(x_i) \text{ do not depend on } c_i > 0",
)
def adaptive_scaling(methods: tuple[str, ...] = ("Adagrad", "RMSprop", "Adam"), steps: int = 50):
    r"""Steps of their own for each coordinate ignore its scale.

    Adaptive methods give each parameter its own step, scaled by its past gradient magnitudes. For a
    separable objective $\sum_i c_i \varphi_i(x_i)$ the iterates of AdaGrad, RMSProp and Adam (with
    $\epsilon = 0$) do not depend on the positive factors $c_i$, while those of gradient descent do;
    this suits compositional models whose layers have gradients of very different size.

    *Proof.* $c_i$ multiplies $g_i$ and the root of any average of $g_i^2$ alike. Checked for
    torch's methods with $\varphi = x^2 / 2$ and $\log \cosh x$: for powers of two, which multiply
    without rounding, bit for bit, and for other factors up to rounding.

    Knobs:
        methods: Which methods are said to ignore the factors.
        steps: How many steps are taken.
    """
    start = torch.randn(6).abs() + 0.1

    def slopes(x: Tensor) -> Tensor:
        return torch.cat([x[:3], x[3:].tanh()])

    powers = torch.tensor([1.0, 2.0**-10, 2.0**14] * 2)
    others = torch.tensor([0.3, 7e-5, 1100.0] * 2)
    for name in methods:
        plain, _ = recorded(METHODS[name], start, slopes, steps)
        for c, tol in ((powers, 0.0), (others, 1e-10)):
            path, _ = recorded(METHODS[name], start, lambda x, c=c: c * slopes(x), steps)
            gap = (path - plain).abs().amax().nan_to_num(nan=math.inf)
            yield equals("distance of the iterates for scaled coordinates", gap, 0.0, tol=tol,
                         method=name, scales="powers of 2" if tol == 0 else "others")  # fmt: skip


adaptive_scaling.foil("gradient descent", methods=("gradient descent",))
adaptive_scaling.foil("AdaGrad with one accumulator for all", methods=("shared Adagrad",))


def turned_gap(name: str, turn: Tensor, start: Tensor, H: Tensor, steps: int) -> Tensor:
    """How far the iterates on the turned quadratic are from the turned iterates."""
    path, _ = recorded(METHODS[name], start, lambda x: H @ x, steps)
    turned, _ = recorded(METHODS[name], turn.T @ start, lambda x: turn.T @ (H @ (turn @ x)), steps)
    return (turned @ turn.T - path).norm(dim=1).max()


@claim(
    by="identity",
    sources=("B-254", "D-055"),
    budget=0.8,
    full={"steps": 200},
    short=r"f(R x) \text{ from } R^\top x_0: \text{ gradient descent gives } R^\top x_k,"
    r"\text{ Adam and AdaGrad do not}",
)
def rotation_dependence(
    equivariant: tuple[str, ...] = ("gradient descent", "heavy ball"), steps: int = 50
):
    r"""Diagonal adaptive methods depend on the basis.

    Gradient descent and momentum are equivariant under rotations of the parameters: on $f(R x)$
    from $R^\top x_0$ they produce $R^\top x_k$. AdaGrad and Adam are not, because their
    preconditioner is diagonal in the given coordinates; under signed permutations of these they
    are.

    *Proof.* The gradient of $f(R x)$ is $R^\top \nabla f(R x)$, and the methods are linear in the
    gradients. Checked for $\frac12 (x^2 + 10 y^2)$ turned by 0.7, from $(1, 1)$, where the
    adaptive iterates are more than 0.1 apart; and for a random rotation in four dimensions.

    Knobs:
        equivariant: The methods that are said to be equivariant under rotations.
        steps: How many steps are taken.
    """
    c, s = math.cos(0.7), math.sin(0.7)
    plane = torch.tensor([[c, -s], [s, c]])
    valley = torch.diag(torch.tensor([1.0, 10.0]))
    space = torch.linalg.qr(torch.randn(4, 4)).Q
    bowl = torch.diag(torch.tensor([1.0, 2.0, 5.0, 10.0]))
    cases = ((plane, torch.ones(2), valley), (space, torch.randn(4), bowl))
    name = "distance of turned iterates"
    for method in equivariant:
        for turn, start, H in cases:
            gap = turned_gap(method, turn, start, H, steps)
            yield equals(name, gap, 0.0, tol=1e-12, method=method, d=len(start))
    for method in ("Adam", "Adagrad"):
        gap = turned_gap(method, plane, torch.ones(2), valley, steps)
        yield at_least(f"{name}, of adaptive methods", gap, 0.1, method=method)
        mirror = torch.zeros(4, 4)
        mirror[torch.randperm(4), torch.arange(4)] = torch.tensor([1.0, -1.0, -1.0, 1.0])
        gap = turned_gap(method, mirror, torch.randn(4), bowl, steps)
        yield equals(f"{name}, for permuted axes", gap, 0.0, tol=1e-12, method=method)


rotation_dependence.foil("Adam is said to be equivariant", equivariant=("Adam",))
rotation_dependence.foil("AdaGrad is said to be equivariant", equivariant=("Adagrad",))


def valley(angle: float) -> Tensor:
    """The quadratic form with eigenvalues 1 and 100, turned."""
    c, s = math.cos(angle), math.sin(angle)
    turn = torch.tensor([[c, -s], [s, c]])
    return turn @ torch.diag(torch.tensor([1.0, 100.0])) @ turn.T


def least_condition(H: Tensor, scalings: int) -> Tensor:
    """The least condition number over diag(1, s) H diag(1, s), s logarithmically spaced."""
    s = torch.logspace(-3, 3, scalings)
    D = torch.diag_embed(torch.stack([torch.ones_like(s), s], 1))
    values = torch.linalg.eigvalsh(D @ H @ D)
    return (values[:, 1] / values[:, 0]).min()


@claim(
    by="identity",
    sources=("D-055", "E-185"),
    budget=0.5,
    full={"scalings": 600_001},
    short=r"\min_D \kappa(D H D) = 1 \text{ for } H = \mathrm{diag}(1, 100),"
    r"\; 100 \text{ for the same at } 45^\circ",
)
def diagonal_preconditioning(
    round_at: tuple[float, ...] = (0.0, math.pi / 2), turned: float = 100.0, scalings: int = 6001
):
    r"""Diagonal scaling rounds axis-aligned valleys only.

    Per-coordinate scaling acts as a diagonal preconditioner, $H \to D H D$: it turns the
    axis-aligned valley $\mathrm{diag}(1, 100)$ into a round bowl (condition number 1), but no
    positive diagonal scaling brings the same valley turned by 45 degrees below condition number
    100.

    *Proof in two dimensions.* With $\rho = |h_{12}| / \sqrt{h_{11} h_{22}}$, which no $D$ changes,
    the condition number of $D H D$ is least where its diagonal entries are equal, namely
    $(1 + \rho) / (1 - \rho)$; at 45 degrees they are equal from the start. Checked on scalings
    logarithmically spaced in $[10^{-3}, 10^3]$, also for drawn angles.

    Knobs:
        round_at: The angles of the valleys that are said to become round.
        turned: The least condition number of the valley at 45 degrees.
        scalings: How many scalings are tried.
    """
    name = "least condition number over diagonal scalings"
    for angle in round_at:
        yield equals(name, least_condition(valley(angle), scalings), 1.0, angle=angle)
    found = least_condition(valley(math.pi / 4), scalings)
    yield equals("least condition number at 45 degrees", found, turned)
    spacing = 6 * math.log(10) / (scalings - 1)
    for angle in (0.1 + 0.6 * torch.rand(3)).tolist():
        H = valley(angle)
        rho = H[0, 1].abs() / (H[0, 0] * H[1, 1]).sqrt()
        closed = (1 + rho) / (1 - rho)
        # Off the best s by a factor e^h the condition number grows by at most e^(2 h).
        found = least_condition(H, scalings)
        yield at_least(f"{name}, drawn angle", found, closed)
        yield equals(f"{name}, drawn angle", found / closed, 1.0, tol=2 * spacing, angle=angle)


diagonal_preconditioning.foil("only the root is left at 45 degrees", turned=10.0)
diagonal_preconditioning.erratum(
    "E-185",
    printed="AdaGrad turns a valley into a round hole (without restriction)",
    right="AdaGrad turns an axis-aligned valley into a round hole",
    why=r"True only for axis-aligned valleys: for"
    r" $\begin{pmatrix} 50.5 & -49.5 \\ -49.5 & 50.5 \end{pmatrix}$ with eigenvalues 1 and 100 the"
    " best diagonal scaling leaves the condition number at 100.",
    weight="soft",
    round_at=(math.pi / 4,),
)
