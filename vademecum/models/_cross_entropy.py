r"""The cross-entropy with derivatives in closed form, so that a second one keeps the logits alone.

For logits $z$, targets $t$ that are a distribution or one class, class weights $w$ and $p =
\operatorname{softmax} z$ the loss $\ell = -\sum_c w_c t_c \log p_c$ has, with $s = \sum_c w_c t_c$,

$$\nabla \ell = s\, p - w \odot t, \qquad
\nabla^2 \ell\, u = s\, (p \odot u - p\, \langle p, u \rangle).$$

Autograd's way through the logarithm of the softmax keeps about ten arrays of the size of the logits
for a second derivative, and for a language model one of them may take gigabytes; this one keeps
those which it was given, and is computed in single precision at least. Where one $p_c$ is nearly
one, $u - \langle p, u \rangle$ would cancel, so $u_c$ is subtracted from $u$ first, which changes
nothing else. Smoothed labels are targets $(1 - \epsilon)\, t + \epsilon / k$. The numbers are
torch's up to rounding. A third derivative is refused.
"""

import inspect
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

__all__ = ["class_axis", "closed_cross_entropy", "softmax_product"]

_SIGNATURE = inspect.signature(F.cross_entropy)


class Terms(NamedTuple):
    """A call of the cross-entropy but for its logits."""

    target: Tensor
    weight: Tensor | None
    ignore_index: int
    reduction: str
    label_smoothing: float

    def loss(self, z: Tensor) -> Tensor:
        """The loss, by torch's own function."""
        return F.cross_entropy(
            z, self.target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )  # fmt: skip

    @property
    def kept(self) -> Tensor:
        """Which targets that are classes count."""
        return self.target != self.ignore_index

    @property
    def classes(self) -> Tensor:
        """Targets that are classes, any of them where they are ignored."""
        return self.target.where(self.kept, 0).long()  # bytes would be a mask

    def counted(self, z: Tensor) -> Float[Tensor, " ..."]:
        """What each target counts in the sum by which a mean divides: nothing if ignored."""
        if self.target.is_floating_point():
            return torch.ones_like(z.detach().select(class_axis(z), 0))
        if self.weight is None:
            return self.kept.to(z.dtype)
        return self.weights(z)[self.classes] * self.kept

    def weights(self, z: Tensor) -> Float[Tensor, " k"]:
        """Those of the classes."""
        k = z.shape[class_axis(z)]
        return z.new_ones(k) if self.weight is None else self.weight.to(z.dtype)

    def masses(self, z: Tensor, counted: Tensor) -> Float[Tensor, " ..."]:
        """The sums s of the weighted targets."""
        epsilon = self.label_smoothing
        if self.target.is_floating_point():
            w = self.weights(z)
            s = self.target.to(z.dtype).movedim(class_axis(z), -1) @ w
            return (1 - epsilon) * s + epsilon * w.mean()
        if not epsilon:
            return counted
        return (1 - epsilon) * counted + epsilon * self.weights(z).mean() * self.kept

    def slope(self, z: Tensor, back: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient in the logits, of single precision at least, and what p counts in it."""
        axis, epsilon, counted = class_axis(z), self.label_smoothing, self.counted(z)
        back = back / counted.sum() if self.reduction == "mean" else back
        scale = (back * self.masses(z, counted)).unsqueeze(axis)
        found = z.softmax(axis).mul_(scale)
        along = self.weights(z).view(-1, *[1] * (z.ndim - axis - 1))
        if self.target.is_floating_point():
            t = (1 - epsilon) * self.target + epsilon / len(along)
            return found.sub_(along * t * (back.unsqueeze(axis) if back.ndim else back)), scale
        own = (1 - epsilon) * counted * back
        found.scatter_add_(axis, self.classes.unsqueeze(axis), -own.unsqueeze(axis))
        if epsilon:
            found -= epsilon / len(along) * along * (back * self.kept).unsqueeze(axis)
        return found, scale


def closed_cross_entropy(*args: Any, **kwargs: Any) -> Tensor:
    """The cross-entropy, cheap to differentiate twice unless targets are to be, too."""
    bound = _SIGNATURE.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    z, terms = given["input"], Terms(*(given[name] for name in Terms._fields))
    dropped = given["size_average"] is not None or given["reduce"] is not None  # by torch, one day
    if dropped or not z.requires_grad or terms.target.requires_grad:
        return F.cross_entropy(*args, **kwargs)
    return _CrossEntropy.apply(z, terms)  # pyright: ignore[reportReturnType]


class _CrossEntropy(Function):
    """The loss."""

    @staticmethod
    def forward(z: Tensor, terms: Terms) -> Tensor:
        return terms.loss(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        z, ctx.terms = inputs
        ctx.save_for_backward(z)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return _Slope.apply(*ctx.saved_tensors, *gradients, ctx.terms), None


class _Slope(Function):
    """Its gradient in the logits, times what came back to the loss."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, back: Tensor, terms: Terms) -> Tensor:
        found, ctx.scale = terms.slope(_wide(z), _wide(back))
        ctx.terms = terms
        ctx.save_for_backward(z, back)
        return found.to(z.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("loss must be differentiated twice at most, and this is once more")
        terms, dtype = ctx.terms, gradients[0].dtype
        z, back, u = (_wide(t) for t in (*ctx.saved_tensors, *gradients))
        axis, to_z, to_back = class_axis(z), None, None
        if ctx.needs_input_grad[0]:
            to_z = softmax_product(z.softmax(axis), u, axis).mul_(ctx.scale).to(dtype)
        if ctx.needs_input_grad[1]:
            along = u * terms.slope(z, torch.ones_like(back))[0]
            to_back = (along.sum(axis) if terms.reduction == "none" else along.sum()).to(dtype)
        return to_z, to_back, None


def softmax_product(p: Tensor, u: Tensor, axis: int) -> Tensor:
    """The product of the softmax's derivative, diag p - p p^T, with u.

    Example:
        >>> softmax_product(torch.tensor([0.25, 0.75]), torch.tensor([4.0, 0.0]), 0)
        tensor([ 0.7500, -0.7500])
    """
    u = u - u.gather(axis, p.argmax(axis, keepdim=True))
    return u.sub_((p * u).sum(axis, keepdim=True)).mul_(p)


def _wide(t: Tensor) -> Tensor:
    return t.to(torch.promote_types(t.dtype, torch.float32))


def class_axis(z: Tensor) -> int:
    """The axis of the classes."""
    return 0 if z.ndim == 1 else 1
