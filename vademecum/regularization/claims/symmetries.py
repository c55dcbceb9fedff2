"""Scales and symmetries: other parameters of a network for the same function."""

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm as normalised

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.models import evaluation, mlp
from vademecum.regularization import permute_units, rescale_units
from vademecum.regularization import scale_invariance as measured
from vademecum.regularization.claims.batches import TINY

Kind = Literal["batch", "weight", "layer"]
FACTORS = (3.0, 1e-3)


class Behind(nn.Module):
    """A layer below, one that is normalised in some way, and a readout."""

    def __init__(self, kind: Kind | None, m: int, d: int):
        super().__init__()
        self.below = nn.Linear(d, d + 1, bias=False)
        inner = nn.Linear(d + 1, m, bias=False)
        self.inner = normalised(inner) if kind == "weight" else inner
        after: Any = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}.get(str(kind))
        self.after = nn.Identity() if after is None else after(m, eps=TINY)
        self.readout = nn.Linear(m, 2)
        for p in self.parameters():
            p.data = torch.randn(p.shape) + 0.1

    def weight(self) -> nn.Parameter:
        """What is scaled."""
        direction = "parametrizations.weight.original1"
        names = dict(self.inner.named_parameters())
        return names[direction if direction in names else "weight"]

    def forward(self, x: Tensor) -> Tensor:
        """The output; the loss is linear in it."""
        return self.readout(self.after(self.inner(self.below(x))))


def scaled(model: Behind, factors: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """The output, and the gradients below and in the weights, with rows times factors."""
    w = model.weight()
    kept = w.detach().clone()
    with torch.no_grad():
        w.mul_(factors[:, None])
    z = model(x)
    grads = torch.autograd.grad((z * y).sum(), [model.below.weight, w])
    found = z.detach(), *grads, w.detach().clone()
    with torch.no_grad():
        w.copy_(kept)
    return found


@claim(
    by="identity", sources=("B-304", "B-305", "B-318"), budget=0.8,
    short=r"L(c w) = L(w):\quad w \cdot \nabla_w L = 0,\quad"
    r" \nabla L(c w) = \frac1c \nabla L(w),\quad \eta_e = \eta / \|w\|^2",
)  # fmt: skip
def scale_invariance(
    sign: int = 1, factors: Literal["as stated", "for each unit"] = "as stated", power: int = 2
) -> Iterator[Evidence]:
    r"""Normalised layers do not feel the scale of their weights.

    With $\delta = 0$ the output of a layer followed by batch normalisation, or parametrised by
    weight normalisation, does not change when a unit's incoming weights are multiplied by $c > 0$;
    for layer normalisation all units must be scaled by one $c > 0$. Hence $w \cdot \nabla_w L = 0$
    and the gradients in layers below do not depend on the scale, where without normalisation they
    grow with $c$. A step $\eta$ turns $w$ as a step $\eta / \|w\|^2$ turns $w / \|w\|$: one step
    size suits layers of different scale.

    `scale_invariance` must tell which tensors are so, and by units or as a whole. The loss is
    linear in the output, which makes the growth without normalisation exact.

    Knobs:
        sign: The sign of $c$.
        factors: Whether each unit has a factor of its own where batch and weight normalisation
            allow it, or everywhere.
        power: The power of $\|w\|$ that the effective step is divided by.
    """
    kinds: tuple[Kind | None, ...] = ("batch", "weight", "layer", None)
    for kind, (n, m, d) in product(kinds, ((9, 4, 3), (6, 3, 5))):
        model, x, y = Behind(kind, m, d), torch.randn(n, d), torch.randn(n, 2)
        at = {"kind": kind or "none", "units": m}
        z, below, g, w = scaled(model, torch.ones(m), x, y)
        each = kind in ("batch", "weight") or factors == "for each unit"
        for c in FACTORS if kind else ():
            rows = sign * c * (1 + torch.rand(m) * each)
            z_c, below_c, g_c, _ = scaled(model, rows, x, y)
            yield equals("output of scaled weights", z_c, z, tol=1e-9, **at, c=sign * c)
            size = float(below.norm())
            name = "gradient below of scaled weights"
            yield equals(name, below_c / size, below / size, tol=1e-9, **at, c=sign * c)
            yield equals("gradient in weights, times its factor", rows[:, None] * g_c / g.norm(),
                         g / g.norm(), tol=1e-9, **at, c=sign * c)  # fmt: skip
        if not kind:
            _, below_c, _, _ = scaled(model, 3 * torch.ones(m), x, y)
            yield equals("growth below without normalisation", below_c / below, 3.0, tol=1e-9)
        yield from verdicts(model, kind, x, y, g, w, power)


def verdicts(
    model: Behind, kind: Kind | None, x: Tensor, y: Tensor, g: Tensor, w: Tensor, power: int
) -> Iterator[Evidence]:
    """What the instrument says of the weights, and a step of gradient descent."""
    at, eta = {"kind": kind or "none", "units": len(w)}, 0.1
    found = measured(model, x, y, loss=lambda z, t: (z * t).sum(), eta=eta)
    by_name = {row.name: row for row in found.tensors}
    place = next(name for name, p in model.named_parameters() if p is model.weight())
    said = {"units": 2, "tensor": 1, "layer": 1}.get(by_name[place].invariant, 0)
    told = {"batch": 2, "weight": 2, "layer": 1, None: 0}[kind]
    yield equals("verdict: 2 by units, 1 as a whole, 0 none", said, told, **at)
    yield equals("verdict on the layer below and the readout", sum(
        by_name[f"{name}.weight"].invariant != "none" for name in ("below", "readout")
    ), 1 if kind in ("batch", "layer") else 0, **at)  # fmt: skip
    if kind is None:
        return
    rows = (w * g).sum(1) / w.norm(dim=1) / g.norm(dim=1)
    cosine = (w * g).sum() / w.norm() / g.norm() if kind == "layer" else rows
    yield equals("cosine of weights and gradient", cosine, 0.0, tol=1e-9, **at)
    norm = w.norm(dim=1, keepdim=True) if told == 2 else w.norm()
    step = torch.as_tensor(by_name[place].effective_step)
    stated = (eta / norm**power).flatten()
    yield equals("effective step", step.flatten() / stated, 1.0, tol=1e-9, **at)
    unit = scaled(model, (1 / norm).expand(len(w), 1).flatten(), x, y)
    turned = [w - eta * g, unit[3] - stated[:, None] * unit[2]]
    for k, v in enumerate(turned):
        turned[k] = nn.functional.normalize(v if told == 2 else v.flatten(), dim=-1)
    yield equals("direction after a step", turned[0], turned[1], tol=1e-9, **at)


scale_invariance.foil("a negative factor", sign=-1)
scale_invariance.foil("layer normalisation by units", factors="for each unit")
scale_invariance.foil("a step over the length, not its square", power=1)


def two_layers(m: int) -> Any:
    """A small network with weights that are never nearly zero."""
    model = mlp((3, m, 2))
    for p in model.parameters():
        p.data = torch.randn(p.shape)
        p.data += 0.1 * p.data.sign()
    return model


@torch.no_grad()
def value(model: Any, x: Tensor, phi: Any = torch.relu) -> Tensor:
    """The network by its formula."""
    one, two = model[0], model[2]
    return phi(x @ one.weight.T + one.bias) @ two.weight.T + two.bias


def images() -> nn.Sequential:
    """Convolutions, batch normalisation with statistics, ReLU, pooling, a linear layer."""
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 2), nn.LeakyReLU(0.2),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 2),
    )  # fmt: skip
    with torch.no_grad():
        model(torch.randn(16, 2, 7, 7))  # which fills the statistics
        for p in model.parameters():
            p.add_(0.2 * torch.randn(p.shape))
    return model


@claim(
    by="identity", sources=("A-319",), budget=0.9,
    short=r"W_2 \phi(W_1 x) = W_2 P^\top \phi(P W_1 x),\ \text{ReLU}: ="
    r" W_2 C^{-1} \phi(C W_1 x),\ C > 0 \text{ diagonal}",
)  # fmt: skip
def parameter_symmetry(
    reading: bool = True, sign: int = 1, activation: Literal["relu", "tanh"] = "relu"
) -> Iterator[Evidence]:
    r"""A network is its function, not its parameters: many parameters give the same function.

    Permuting hidden units (the rows of $W_1$, the entries of $b_1$ and the columns of $W_2$
    together), or scaling a ReLU unit's incoming weights and bias by $c > 0$ and its outgoing
    weights by $1 / c$, changes the parameters and not the function. So models of any architecture
    are compared, or copied, through their outputs, as distillation does.

    All 23 other orders of four units by `permute_units`, and random scales by `rescale_units`; the
    function is computed by its formula. Then a convolutional network with batch normalisation.

    Knobs:
        reading: Whether the columns of $W_2$ are permuted as well.
        sign: The sign of $c$.
        activation: The function of the units where they are scaled.
    """
    model, x = two_layers(4), torch.randn(100, 3)
    before = value(model, x)
    scale = float(before.abs().max())
    for order in list(permutations(range(4)))[1:]:
        given = {"0": torch.tensor(order)}
        other: Any = permute_units(model, x[:1], permutations=given).model
        if not reading:
            other[2].weight.data = model[2].weight.data
        name, at = "output of permuted units", dict[str, Any](order=str(order))
        yield equals(name, value(other, x) / scale, before / scale, tol=1e-12, **at)
        moved = (other[0].weight - model[0].weight).abs().max()
        yield at_least("change of the weights", moved, 1e-3, **at)
    phi = torch.relu if activation == "relu" else torch.tanh
    for m in (4, 7):
        model, c = two_layers(m), 2 + 3 * torch.rand(m)
        other = rescale_units(model, x[:1], scales={"0": c}).model
        for p in (other[0].weight, other[0].bias, other[2].weight):
            p.data *= sign
        gap = (value(other, x, phi) - value(model, x, phi)).abs().max()
        size = float(value(model, x, phi).abs().max())
        yield at_most("change of outputs by scaled units", gap / size, 0.0, tol=1e-12, m=m)
        grown = (other[0].weight / model[0].weight - sign * c[:, None]).abs().max()
        yield at_most("incoming weights, less c times", grown, 0.0, tol=1e-12, m=m)
    model, x = images(), torch.randn(20, 2, 7, 7)
    for change in (permute_units, rescale_units):
        found = change(model, x[:1])
        with evaluation(model), evaluation(found.model), torch.no_grad():
            gap = (found.model(x) - model(x)).abs().max() / model(x).abs().max()
        at = dict[str, Any](change=change.__name__)
        yield at_most("change of a convolutional network", gap, 0.0, tol=1e-11, **at)
        yield equals("layers that changed", len(found.layers), 2, **at)


parameter_symmetry.foil("incoming weights permuted alone", reading=False)
parameter_symmetry.foil("a negative factor", sign=-1)
parameter_symmetry.foil("units of another function", activation="tanh")
