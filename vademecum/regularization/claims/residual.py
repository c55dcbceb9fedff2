"""Shortcuts: what adding or joining the input does to signals, gradients and functions."""

import math
from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.regularization import Residual

ACTIVATIONS: tuple[tuple[type[nn.Module], float], ...] = (
    (nn.Sigmoid, 0.25), (nn.Tanh, 1.0), (nn.Softplus, 1.0), (nn.ReLU, 1.0),
)  # fmt: skip
"""Activations with their Lipschitz constants."""


def branch(width: int, layers: int, activation: type[nn.Module]) -> nn.Sequential:
    """Linear layers, each with its activation."""
    return nn.Sequential(
        *(part for _ in range(layers) for part in (nn.Linear(width, width), activation()))
    )


def shrunk(model: nn.Module, factor: float) -> None:
    """Multiply all parameters by a factor."""
    with torch.no_grad():
        for p in model.parameters():
            p *= factor


@claim(
    by="identity",
    sources=("A-159", "A-162", "B-295", "B-298", "C-056", "C-057"),
    short=r"g(x) = x + [\phi(W x + b) - \phi(0)]:\ W = 0,\ b = 0 \Rightarrow g(x) = x",
)
def residual_layer(centred: bool = True, sign: int = 1) -> Iterator[Evidence]:
    r"""A residual layer learns a correction to the identity, to which zero parameters lead.

    It adds its input back, $g(x) = x + f(x; \theta)$ (same shape; $f$ may have any number of
    layers), so weight decay pulls it towards the identity instead of towards a constant. In the
    form $x + [\phi(W x + b) - \phi(0)]$ zero parameters give exactly the identity, whatever $\phi$.

    *Proof.* $f(x; 0) = \phi(0)$ for every $x$. For one layer and $\mathrm{Lip}(\phi) = K$
    parameters shrunk by $s$ stay within $s K |W x + b|$ of the identity.

    Checked with the logistic function, tanh, softplus and ReLU, for 1 to 3 layers: zero parameters
    bit by bit, random ones against a second computation.

    Knobs:
        centred: Whether $\phi(0)$ is taken off.
        sign: The sign with which the branch is said to come in.
    """
    for (activation, K), layers in product(ACTIVATIONS, (1, 2, 3)):
        width, at = 3 + layers, {"activation": activation.__name__, "layers": layers}
        layer, x = (
            Residual(branch(width, layers, activation), centred=centred),
            torch.randn(5, width),
        )
        found = layer(x).detach()
        h, phi = x, activation()
        for part in layer.module.children():
            if isinstance(part, nn.Linear):
                h = phi(h @ part.weight.detach().T + part.bias.detach())
        at_zero = phi(torch.zeros(()))
        stated = x + sign * (h - at_zero)
        yield equals("output", found, stated, tol=1e-12, **at)
        yield equals("shape", found.shape, x.shape, **at)
        if layers == 1:
            first = next(layer.module.children())
            reach = K * first(x).detach().abs()
            shrunk(layer, 2.0**-20)
            moved = (layer(x).detach() - x).abs() * 2.0**20
            yield at_most("distance from the identity over s", moved, reach, tol=1e-8, **at)
        shrunk(layer, 0.0)
        yield equals("output at zero", layer(x).detach(), x, tol=0.0, **at)
        jacobian = torch.func.jacrev(layer)(x[0])
        yield equals("Jacobian at zero", jacobian, torch.eye(width), tol=0.0, **at)


residual_layer.foil(
    "without the subtraction the logistic function adds 1/2",
    refuted_by="output at zero",
    centred=False,
)
residual_layer.foil("the branch is taken off", sign=-1)


@claim(
    by="identity",
    sources=("A-159", "B-293", "B-296", "B-297"),
    short=r"J_g = I + J_f,\quad \|J_f\| \le \delta < 1: (1 - \delta)^L \le"
    r" \tfrac{\|\nabla_0\|}{\|\nabla_L\|} \le (1 + \delta)^L",
)
def residual_jacobian(shortcut: float = 1.0, layers: int = 50) -> Iterator[Evidence]:
    r"""The Jacobian of a residual layer is the identity plus that of its branch.

    $J_g = I + J_f \approx I$ when $f \approx 0$, so signals and gradients bypass layers that have
    not learned anything yet, while a plain layer with small weights has $J_f \approx 0$ and blocks
    them: across $L$ blocks with $\|J_{f_l}\| \le \delta < 1$ the gradient norm changes by a factor
    in $[(1 - \delta)^L, (1 + \delta)^L]$, in a plain stack it is at most $\delta^L$. With a
    projection shortcut $g(x) = P x + f(x)$, needed when dimensions differ, $J_g = P + J_f$.

    *Proof.* $\|(I + J)^T u\|$ lies within $\|J\| \|u\|$ of $\|u\|$; multiply over the blocks.
    Checked with tanh: Jacobians by central differences, at equal widths and from 3 to 5, and 50
    blocks of spectral norm 0.02, whose gradient is also the product of the stated Jacobians.

    Knobs:
        shortcut: What the identity or projection is multiplied by in the stated Jacobian.
        layers: How many blocks there are.
    """
    for n, m in ((4, 4), (3, 5)):
        f = nn.Linear(n, m)
        P = torch.eye(m) if n == m else torch.randn(m, n)
        projection = None if n == m else nn.Linear(n, m, bias=False)
        if projection is not None:
            projection.weight.data = P.clone()
        g, x = Residual(nn.Sequential(f, nn.Tanh()), projection), torch.randn(n)
        steps = 1e-5 * torch.eye(n)
        differences = (g(x + steps) - g(x - steps)).detach().T / 2e-5
        slopes = (1 - f(x).tanh() ** 2).detach()[:, None] * f.weight.detach()
        yield equals("Jacobian", differences, shortcut * P + slopes, tol=1e-6, n=n, m=m)
    delta, width = 0.02, 8
    blocks = []
    for _ in range(layers):
        part = branch(width, 1, nn.Tanh)
        part[0].weight.data *= delta / torch.linalg.matrix_norm(part[0].weight.data, 2)
        blocks.append(Residual(part))
    x, top = torch.randn(width), torch.randn(width)
    gradient, product_of = torch.func.vjp(nn.Sequential(*blocks), x)[1](top)[0], top
    inputs = [x]
    for block in blocks:
        inputs.append(block(inputs[-1]).detach())
    for block, h in zip(reversed(blocks), reversed(inputs[:-1]), strict=True):
        J = (1 - block.module[0](h).tanh() ** 2).detach()[:, None] * block.module[0].weight.detach()
        product_of = shortcut * product_of + J.T @ product_of
    yield equals("gradient below all blocks", gradient, product_of, tol=1e-12)
    growth = (gradient.norm() / top.norm()).detach().log()
    yield at_least("log of the gradient's growth", growth, layers * math.log(1 - delta))
    yield at_most("log of the gradient's growth", growth, layers * math.log(1 + delta))
    plain = nn.Sequential(*[block.module for block in blocks])
    gradient = torch.func.vjp(plain, x)[1](top)[0]
    growth = (gradient.norm() / top.norm()).detach().log()
    yield at_most("the same in the plain stack", growth, layers * math.log(delta))


residual_jacobian.foil("the identity is forgotten on the way back", shortcut=0.0)
residual_jacobian.foil("the identity counts twice", shortcut=2.0)


class Times(nn.Module):
    """A shortcut that multiplies by a number."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Multiply."""
        return self.factor * x


def stack(depth: int, shortcut: float, width: int) -> nn.Sequential:
    """Residual tanh blocks with small weights and no biases, and a linear output."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        linear = nn.Linear(width, width, bias=False)
        nn.init.normal_(linear.weight, std=0.1)
        layers.append(Residual(nn.Sequential(linear, nn.Tanh()), Times(shortcut)))
    output = nn.Linear(width, 1, bias=False)
    nn.init.normal_(output.weight, std=0.1)
    return nn.Sequential(*layers, output)


def trained(model: nn.Module, x: Tensor, y: Tensor, steps: int) -> Tensor:
    """The mean squared error after steps of descent."""
    descent = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(steps):
        descent.zero_grad()
        (model(x)[:, 0] - y).square().mean().backward()
        descent.step()
    return (model(x)[:, 0] - y).square().mean().detach()


@claim(
    by="training",
    sources=("A-160", "B-294", "B-299"),
    short=r"\text{deeper and worse in training: optimisation, mended by}\ x + f(x)",
)
def resnet_degradation(
    shortcut: float = 1.0, depth: int = 24, steps: int = 120
) -> Iterator[Evidence]:
    r"""A deeper plain network that trains worse fails by optimisation, and shortcuts mend it.

    If a deeper plain network has a higher *training* error than a shallower one the cause is
    optimisation, not overfitting: the deeper class holds better functions, which descent does not
    find. Residual connections remedy it, and residual networks (ResNet: deep CNNs of residual
    blocks, standard in vision) turn added depth into better training.

    Checked with tanh layers of width 8, weights of standard deviation 0.1 and no biases, 64 inputs
    with targets $\tanh(u^T x)$, 120 steps of 0.02: the plain network of 24 layers hears nothing of
    its input (a product of 24 factors of about $0.1 \sqrt 8$) and stays at the loss of 0, one of
    one layer learns, and so does the residual one of 24. What it does for images is quoted.

    Knobs:
        shortcut: What the shortcuts of the residual network multiply by.
        depth: How many layers the deep networks have.
        steps: How many steps of descent are made.
    """
    x, u = torch.randn(64, 8), torch.randn(8)
    y = torch.tanh(x @ u / u.norm())
    zero = y.square().mean()
    plain, shallow, residual = stack(depth, 0.0, 8), stack(1, 0.0, 8), stack(depth, shortcut, 8)
    signal = plain[:-1](x).detach().abs().max()
    # the norm of an 8 x 8 matrix of standard deviation 0.1 is above 1 with probability 1e-9
    yield at_most("log10 of what reaches the top", signal.log10(), -9.0, tol=0.0)
    loss = trained(plain, x, y, steps) / zero
    yield equals("training loss of the deep plain network over that of 0", loss, 1.0, tol=1e-6)
    loss = trained(shallow, x, y, steps) / zero
    yield at_most("the same with one layer", loss, 0.8, tol=0.0)  # observed: at most 0.5
    loss = trained(residual, x, y, steps) / zero
    yield at_most("the same with shortcuts", loss, 0.1, tol=0.0)  # observed: at most 0.06


resnet_degradation.foil(
    "shortcuts multiplied by 0 are none", refuted_by="the same with shortcuts", shortcut=0.0
)
