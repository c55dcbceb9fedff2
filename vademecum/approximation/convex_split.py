r"""Any piecewise-linear network as the difference of two convex ones.

Every value $z$ in the network is carried as a pair of convex functions of the input, $z = u - v$;
the input itself is $(x, 0)$. Through the network's steps (`vademecum.approximation.piecewise`) the
pairs go as follows, with no sign ever in front of a convex function:

* affine, $z \mapsto L z + c$: with $L = L^+ - L^-$, $L^\pm \ge 0$,
  $(u, v) \mapsto (L^+ u + L^- v + c,\; L^- u + L^+ v)$;
* kinks at $\theta_1 < \dots < \theta_p$ with the slopes $a_0, \dots, a_p$, and
  $\delta_i = a_i - a_{i - 1}$: from $(z - \theta)_+ = \max(u - \theta, v) - v$,
  $$\varphi(u - v) = \varphi_0 + \sum_i \delta_i \max(u - \theta_i, v) + a_0 u - a_p v,$$
  each term given to the first or the second part by the sign of its coefficient;
* maximum: $\max_j (u_j - v_j) = \max_j \left(u_j + \sum_{i \ne j} v_i\right) - \sum_i v_i$.

The split is exact and convex by construction, up to rounding in the size of the parts. These grow
like the products of the absolute weights, so deep networks want float64; the split is checked
against the network at the points given. While a value is affine in the input its second part stays
zero. The claim is `dc_decomposition`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.approximation.piecewise import Affine, Kinks, Program, read_program
from vademecum.arguments import floats
from vademecum.models import ModelState, Output, chosen_output
from vademecum.results import one_line

__all__ = ["ConvexPart", "DCSplit", "dc_split"]

Pair = tuple[Tensor, Tensor | None]  # None: zero, and the first is affine in the input


class ConvexPart(nn.Module):
    """One of the two convex functions of a split, each of whose outputs is convex in the input.

    Example:
        >>> g = dc_split(nn.ReLU(), torch.zeros(1, 2)).g
        >>> g(torch.tensor([[-1.0, 2.0]]))
        tensor([[0., 2.]])
    """

    def __init__(self, program: Program, like: Tensor, *, second: bool):
        super().__init__()
        self.program, self.second = program, second
        self.shape, self.dtype = tuple(like.shape[1:]), like.dtype

    def forward(self, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, " batch *out"]:
        """The value of the part at each point."""
        if x.ndim == 0 or tuple(x.shape[1:]) != self.shape:
            raise ValueError(f"x must be a batch of shape {self.shape}, got {tuple(x.shape)}")
        if x.dtype != self.dtype:
            raise ValueError(f"x must be {self.dtype} as in the split, got {x.dtype}")
        u, v = _carry(self.program, x)
        return u if not self.second else torch.zeros_like(u) if v is None else v

    def extra_repr(self) -> str:
        """Which part it is."""
        return "h" if self.second else "g"


class DCSplit(NamedTuple):
    """The convex parts $g$ and $h$ of a network $g - h$, and how far off that is.

    Example:
        >>> g, h, gap = dc_split(nn.LeakyReLU(0.5), torch.tensor([[-4.0], [6.0]]))
        >>> gap
        0.0
    """

    g: ConvexPart
    """The first convex part."""
    h: ConvexPart
    """The second, which is subtracted."""
    gap: float
    """The largest difference between the network and $g - h$ at the points of the check."""

    __repr__ = one_line

    """The largest difference between the network and $g - h$ at the points of the check."""


@torch.no_grad()
def dc_split(
    model: nn.Module, x: Float[Tensor, " batch *shape"], *, output: Output = None
) -> DCSplit:
    r"""Write a piecewise-linear network as a difference $g - h$ of two convex ones.

    Args:
        model: Any piecewise-linear module (see `linear_regions`), taken in evaluation.
        x: Points at which to compare $g - h$ with the model; they also fix the shape, dtype and
            device of the inputs.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        The parts $g$ and $h$, modules that stay as the model is now, and the largest difference.

    Raises:
        ValueError: If a step is not piecewise linear, or if the parts are so large that the model
            is lost in their rounding.

    References:
        Zhang, Naitzat and Lim, Tropical geometry of deep neural networks, ICML, 2018.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
        >>> for p, v in zip(model.parameters(), (1.0, 0.0, -3.0, 1.0)):
        ...     _ = p.data.fill_(v)
        >>> x = torch.tensor([[-1.0], [2.0]])
        >>> g, h, gap = dc_split(model, x)  # 1 - 3 max(x, 0)
        >>> g(x).flatten().tolist(), h(x).flatten().tolist()
        ([1.0, 1.0], [0.0, 6.0])
    """
    x = floats("x", x)
    if x.ndim < 2:
        raise ValueError(f"x must be a batch of points, got shape {tuple(x.shape)}")
    program = read_program(model, tuple(x.shape[1:]), x, copy=True, output=output)
    g, h = (ConvexPart(program, x, second=second) for second in (False, True))
    wanted = chosen_output(ModelState(model, dtype=x.dtype).run(model, x.clone()), output)
    u = g(x)
    gap, size = float((u - h(x) - wanted).abs().max()), float(u.abs().max())
    if not gap <= torch.finfo(x.dtype).eps ** 0.5 * (1 + float(wanted.abs().max())):
        raise ValueError(
            f"model must not be lost in the rounding of its convex parts, got parts of size"
            f" {size:.3g} and a difference of {gap:.3g}: use a wider dtype than {x.dtype}"
        )
    return DCSplit(g, h, gap)


def _carry(program: Program, x: Tensor) -> Pair:
    values: dict[int, Pair] = {program.source: (x, None)}
    for step, dead in zip(program.steps, program.dead_after, strict=True):
        pairs = [values[name] for name in step.inputs]
        if isinstance(step.map, Affine):
            values[step.output] = _affine(step.map, pairs)
        elif isinstance(step.map, Kinks):
            values[step.output] = _kinks(step.map, *pairs[0])
        else:
            values[step.output] = _largest(*pairs[0])
        for name in dead:
            del values[name]
    return values[program.result]


def _affine(step: Affine, pairs: list[Pair]) -> Pair:
    if all(v is None for _, v in pairs):
        return step(*(u for u, _ in pairs)), None
    both = [(u, torch.zeros_like(u) if v is None else v) for u, v in pairs]
    absolute = step.radius(*(u + v for u, v in both))  # |L| (u + v)
    signed = step.linear(*(u - v for u, v in both))  # L (u - v)
    u = (absolute + signed) / 2
    return (u if step.offset is None else u + step.offset), (absolute - signed) / 2


def _kinks(step: Kinks, u: Tensor, v: Tensor | None) -> Pair:
    v = torch.zeros_like(u) if v is None else v
    a = step.slopes
    terms = [(a[0], u), (-a[-1], v)]
    for theta, before, after in zip(step.thresholds, a[:-1], a[1:], strict=True):
        terms.append((after - before, torch.maximum(u - theta, v)))
    plus, minus = (
        torch.stack([(sign * c).clamp(min=0) * part for c, part in terms]).sum(0)
        for sign in (1, -1)
    )
    return (plus if step.intercepts is None else plus + step.intercepts[0]), minus


def _largest(u: Tensor, v: Tensor | None) -> Pair:
    if v is None:
        return u.amax(-1), torch.zeros_like(u[..., 0])
    total = v.sum(-1, keepdim=True)
    return (u + (total - v)).amax(-1), total[..., 0]
