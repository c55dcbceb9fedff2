r"""Passes in which examples have their own draws of Gaussian weights, where that is exact.

A row $x$ that meets a weight $W$ with independent entries $N(\mu, \sigma^2)$ once and alone gives

$$W x + b \sim N\big(\mu x + \mu_b,\ (\sigma^2) (x^2) + \sigma_b^2\big), \qquad
\text{independent entries},$$

so that the outputs can be drawn in the place of the weights (local reparametrisation), and each
example has a draw of its own. The same holds for a convolution with one place of its kernel. Where
one example meets a weight in several rows, places or calls, these share its draw: there the weights
themselves are drawn, once for the batch, or for each example a set of its own.

A `TorchFunctionMode` sees every call of torch with a parameter among its arguments. A parameter
that was seen in anything but one such call is drawn as it is.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from vademecum.randomness import source

__all__ = ["Draws", "Gaussian", "OwnDraws", "normal"]

Draws = Literal["auto", "example", "batch"]

_CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
_NAMES = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_VALUES = {"data", "T", "mT", "H", "mH", "real", "imag", "grad"}  # attributes that hold numbers
_QUESTIONS = {"size", "dim", "numel", "nelement", "is_floating_point", "is_complex", "stride",
              "is_contiguous", "__len__", "element_size", "is_same_size"}  # fmt: skip


class Gaussian(NamedTuple):
    """The law of one parameter: independent entries."""

    place: int
    mean: Tensor
    log_variance: Tensor


class OwnDraws(TorchFunctionMode):
    """Draw the outputs of layers, or weights for each example, while a model runs.

    Args:
        laws: The laws of parameters that stand in the model by their means, for this to draw.
        n: The number of examples.
        draws: "auto" for outputs alone, "example" for weights of examples as well.
        generator: Where random numbers come from.
    """

    def __init__(
        self, laws: Iterable[Gaussian], n: int, draws: Draws, generator: torch.Generator | None
    ):
        super().__init__()
        self.laws = {id(law.mean): law for law in laws}
        self.n, self.draws, self.generator = n, draws, generator
        self.seen: dict[int, int] = {}
        """How often each parameter was met; a use that is not of this kind counts for two."""
        self.numbers = 0
        """How many weights were drawn for each example."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        met = [law for t in _tensors((args, kwargs)) if (law := self.laws.get(id(t)))]
        if not met or _asks(func):
            return func(*args, **kwargs)
        if func is F.linear or func in _CONVOLUTIONS:
            call = dict(zip(_NAMES, args, strict=False)) | kwargs
            if (made := self._layer(func, call)) is not None:
                self._count(met, 1)
                return made
        self._count(met, 2)
        return func(*args, **kwargs)

    def _count(self, met: list[Gaussian], uses: int) -> None:
        for law in met:
            self.seen[law.place] = self.seen.get(law.place, 0) + uses

    def _layer(self, func: Callable[..., Any], call: dict[str, Any]) -> Tensor | None:
        x, weight, bias = call.pop("input"), call.pop("weight"), call.pop("bias", None)
        laws = [None if t is None else self.laws.get(id(t)) for t in (weight, bias)]
        if id(x) in self.laws or x.shape[:1] != (self.n,) or (x is weight):
            return None
        own = x.ndim == (2 if func is F.linear else weight.ndim)
        if func is F.linear and own:
            return self._outputs(func, x, weight, bias, laws, call)
        if func is not F.linear and own and self._one_place(x, weight, call):
            return self._outputs(func, x, weight, bias, laws, call)
        if self.draws != "example" or (func is not F.linear and not own):
            return None
        return self._examples(func, x, weight, bias, laws, call)

    def _one_place(self, x: Tensor, weight: Tensor, call: dict[str, Any]) -> bool:
        """Whether a kernel covers its input just once."""
        fits = x.shape[2:] == weight.shape[2:]
        padded = call.get("padding", 0) not in (0, "valid") and any(_numbers(call["padding"]))
        dilated = any(d != 1 for d in _numbers(call.get("dilation", 1)))
        return fits and not padded and not dilated

    def _outputs(
        self, func: Any, x: Tensor, weight: Tensor, bias: Tensor | None,
        laws: list[Gaussian | None], call: dict[str, Any],
    ) -> Tensor:  # fmt: skip
        """The outputs of a layer, each drawn by itself."""
        mean = func(x, weight, bias, **call)
        of_weight, of_bias = ((None if law is None else law.log_variance.exp()) for law in laws)
        if of_weight is not None:
            variance = func(x.square(), of_weight, of_bias, **call)
            if of_weight.dtype != variance.dtype:  # under autocast
                variance = variance.to(of_weight.dtype)
        else:
            assert of_bias is not None
            variance = of_bias.view(-1, *[1] * (mean.ndim - 2)).expand_as(mean)
        # Its root has no derivative at 0, where nothing is to be drawn.
        std = variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
        return torch.addcmul(mean, std.to(mean.dtype), normal(mean.shape, mean, self.generator))

    def _examples(
        self, func: Any, x: Tensor, weight: Tensor, bias: Tensor | None,
        laws: list[Gaussian | None], call: dict[str, Any],
    ) -> Tensor:  # fmt: skip
        """The outputs of a layer with weights drawn for each example."""
        n = self.n
        W = self._drawn(laws[0]) if laws[0] else weight.expand(n, *weight.shape)
        b = self._drawn(laws[1]) if laws[1] else bias
        if func is F.linear:
            out = (x.reshape(n, -1, x.shape[-1]) @ W.mT).view(*x.shape[:-1], W.shape[1])
            if b is None:
                return out
            return out + (b.view(n, *[1] * (out.ndim - 2), -1) if laws[1] else b)
        call["groups"] = n * call.get("groups", 1)
        flat = x.reshape(1, -1, *x.shape[2:])
        out = func(flat, W.reshape(-1, *W.shape[2:]), None, **call)
        out = out.view(n, W.shape[1], *out.shape[2:])
        ones = [1] * (out.ndim - 2)
        return out if b is None else out + b.view(n if laws[1] else 1, -1, *ones)

    def _drawn(self, law: Gaussian) -> Tensor:
        self.numbers += law.mean.numel()
        eps = normal((self.n, *law.mean.shape), law.mean, self.generator)
        return torch.addcmul(law.mean, (law.log_variance / 2).exp(), eps)


def normal(shape: Iterable[int], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal numbers in the dtype and on the device of a tensor."""
    drawn = torch.randn(tuple(shape), dtype=like.dtype, **source(generator, like.device))
    return drawn.to(like.device)


def _asks(func: Any) -> bool:
    """Whether a call asks for a shape or the like, and not for numbers."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return getattr(getattr(func, "__self__", None), "__name__", "data") not in _VALUES
    return name in _QUESTIONS


def _tensors(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, dict):
        for v in x.values():
            yield from _tensors(v)
    elif isinstance(x, list | tuple):
        for v in x:
            yield from _tensors(v)


def _numbers(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, list | tuple) else (x,)
