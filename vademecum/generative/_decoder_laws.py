r"""What a decoder's output says of an example: the law $p(x \mid z)$ of independent coordinates.

| law | the decoder returns | $\log p(x \mid z)$ |
|---|---|---|
| Gaussian | means $\mu$ (and, where the noise is predicted, log-variances) | $-\frac12 \sum_j \bigl(\frac{(x_j - \mu_j)^2}{\sigma_j^2} + \log 2 \pi \sigma_j^2\bigr)$ |
| Bernoulli | logits $a$ | $\sum_j \bigl(x_j a_j - \log(1 + e^{a_j})\bigr)$ |
| categorical | logits, (n, classes, ...) | $\sum_j \bigl(a_{j x_j} - \log \sum_c e^{a_{jc}}\bigr)$ |

Sums over all coordinates of an example, in single precision at least, exact up to rounding, finite
for logits of any size. For `draws` codes of each example there are as many rows, the examples of the
first draw before those of the second. Checked by the claims `vae_gaussian_decoder` and
`vae_bernoulli_decoder`.
"""  # noqa: E501

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import number
from vademecum.generative._code_calls import repeated
from vademecum.randomness import categorical, source

__all__ = ["BernoulliLaw", "CategoricalLaw", "GaussianLaw", "Law", "pair", "wide"]

_LOG_2PI = math.log(2 * math.pi)
_LONG = (torch.float32, torch.float64)


def pair(who: str, given: Any) -> tuple[Tensor, Tensor]:
    """A mean and a log-variance: two tensors of one shape, or halves along axis 1 of one tensor.

    Example:
        >>> [half.tolist() for half in pair("encoder", torch.tensor([[1.0, 2.0, 3.0, 4.0]]))]
        [[[1.0, 2.0]], [[3.0, 4.0]]]
    """
    if isinstance(given, Tensor):
        if given.ndim > 1 and given.shape[1] and given.shape[1] % 2 == 0:
            mean, log_variance = given.chunk(2, 1)
            return mean, log_variance
        said = f"shape {tuple(given.shape)}"
    elif isinstance(given, tuple | list) and all(isinstance(part, Tensor) for part in given):
        if len(given) == 2 and given[0].shape == given[1].shape and given[0].ndim > 1:
            return given[0], given[1]
        said = f"shapes {[tuple(part.shape) for part in given]}"
    else:
        said = type(given).__name__
    raise ValueError(
        f"{who} must return a mean and a log-variance, as two tensors of one shape or as one of"
        f" twice the width along axis 1, got {said}"
    )


class GaussianLaw(nn.Module):
    """Independent normal coordinates.

    Args:
        noise: The standard deviation of all coordinates; or "learned", one number for all of them
            that is a parameter; or "predicted" by the decoder, for each coordinate.
    """

    def __init__(self, noise: float | Literal["learned", "predicted"]):
        super().__init__()
        if isinstance(noise, str) and noise not in ("learned", "predicted"):
            raise ValueError(f"noise must be a number, 'learned' or 'predicted', got {noise!r}")
        self.noise = noise if isinstance(noise, str) else number("noise", noise, above=0)
        self._fixed = 0.0 if isinstance(noise, str) else 2 * math.log(noise)
        self.log_variance = nn.Parameter(torch.zeros(())) if noise == "learned" else None

    def log_prob(self, decoded: Any, x: Tensor, *, draws: int = 1, total: bool = False) -> Tensor:
        """The log-density of each example, or of all together."""
        mean, log_variance = self._read(decoded)
        rows = len(mean), -1
        mean, x = _beside(mean, x, draws)
        count = x.numel() if total else x.numel() // rows[0]
        if isinstance(log_variance, Tensor) and log_variance.ndim:
            log_variance = log_variance.reshape(mean.shape).to(mean.dtype)
            square = F.mse_loss(mean, x, reduction="none")
            each = square * (-log_variance).exp() + log_variance
            each = each.sum() if total else each.reshape(rows).sum(1)
            return -(each + count * _LOG_2PI) / 2
        square = F.mse_loss(mean, x, reduction="sum" if total else "none")
        square = square if total else square.reshape(rows).sum(1)
        if not isinstance(log_variance, Tensor):
            return square * (-math.exp(-log_variance) / 2) - count * (_LOG_2PI + log_variance) / 2
        return -(square * (-log_variance).exp() + count * (_LOG_2PI + log_variance)) / 2

    def mean(self, decoded: Any) -> Tensor:
        """The mean of an example."""
        return self._read(decoded)[0]

    def draw(self, decoded: Any, generator: torch.Generator | None) -> Tensor:
        """An example for each row."""
        mean, log_variance = self._read(decoded)
        noise = torch.randn(mean.shape, dtype=mean.dtype, **source(generator, mean.device))
        log_std = torch.as_tensor(log_variance, dtype=mean.dtype, device=mean.device) / 2
        return mean + log_std.exp() * noise.to(mean.device)

    def extremes(self, x: Tensor) -> tuple[Tensor, ...]:
        """Nothing that has to be looked at: any number will do."""
        return ()

    def refuse(self, x: Tensor, extremes: list[float], *, density: bool) -> None:
        """Refuse nothing: what is not finite shows in the terms."""

    def _read(self, decoded: Any) -> tuple[Tensor, Tensor | float]:
        if self.noise == "predicted":
            return pair("decoder", decoded)
        known = self.log_variance
        return _tensor(decoded), self._fixed if known is None else wide(known)

    def extra_repr(self) -> str:
        """The noise."""
        return f"noise={self.noise!r}"


class BernoulliLaw(nn.Module):
    """Independent coordinates that are 0 or 1.

    Args:
        grey: Whether values between 0 and 1 are taken for the probabilities of random bits.
    """

    def __init__(self, *, grey: bool):
        super().__init__()
        self.grey = grey

    def log_prob(self, decoded: Any, x: Tensor, *, draws: int = 1, total: bool = False) -> Tensor:
        """The log-probability of each example; of a grey one its mean over random bits."""
        logits, x = _beside(_tensor(decoded), x, draws)
        if total:
            return -F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        each = F.binary_cross_entropy_with_logits(logits, x, reduction="none")
        return -each.reshape(len(decoded), -1).sum(1)

    def mean(self, decoded: Any) -> Tensor:
        """The probability of a one."""
        return _tensor(decoded).sigmoid()

    def draw(self, decoded: Any, generator: torch.Generator | None) -> Tensor:
        """Bits for each row, as floating-point numbers."""
        p = self.mean(decoded)
        uniform = torch.rand(p.shape, dtype=p.dtype, **source(generator, p.device))
        return (uniform.to(p.device) < p).to(p.dtype)

    def extremes(self, x: Tensor) -> tuple[Tensor, ...]:
        """The least and the greatest $x (1 - x)$: zero for bits, positive for grey values."""
        return torch.addcmul(x, x, x, value=-1).aminmax()

    def refuse(self, x: Tensor, extremes: list[float], *, density: bool) -> None:
        """Refuse what is neither 0 nor 1, or is outside [0, 1] where grey values are meant."""
        low, high = extremes
        if low < 0 or math.isnan(low):
            good = (x >= 0) & (x <= 1)
        elif high > 0 and not (self.grey and not density):
            good = (x == 0) | (x == 1)
        else:
            return
        place = tuple(int(i) for i in (~good).nonzero()[0])
        what = "between 0 and 1" if self.grey and not density else "0 or 1"
        raise ValueError(
            f"entries of x must be {what} for a Bernoulli likelihood, got"
            f" {x[place].item():.6g} at {place}: {self._advice(density)}"
        )

    def _advice(self, density: bool) -> str:
        if self.grey and density:
            return "grey values have a bound, `elbo`, and no probability"
        if self.grey:
            return "a grey value is the probability of a one"
        return (
            "it is a law of bits. Draw them with torch.bernoulli(x), take likelihood='gaussian', or"
            " say grey=True to mean the average over such draws"
        )

    def extra_repr(self) -> str:
        """Whether grey values are taken."""
        return f"grey={self.grey}"


class CategoricalLaw(nn.Module):
    """Independent coordinates that are one of k classes; classes are on axis 1 of the logits."""

    def log_prob(self, decoded: Any, x: Tensor, *, draws: int = 1, total: bool = False) -> Tensor:
        """The log-probability of each example, or of all together."""
        x = repeated(x, draws)
        logits = wide(self._read(decoded, x))
        labels = x.long().clamp(0, logits.shape[1] - 1)  # a label out of range is refused later
        if total:
            return -F.cross_entropy(logits, labels, reduction="sum")
        return -F.cross_entropy(logits, labels, reduction="none").reshape(len(x), -1).sum(1)

    def mean(self, decoded: Any) -> Tensor:
        """The probabilities of all classes, on axis 1."""
        return _tensor(decoded).softmax(1)

    def draw(self, decoded: Any, generator: torch.Generator | None) -> Tensor:
        """Labels for each row."""
        logits = _tensor(decoded).movedim(1, -1)
        rows = logits.reshape(-1, logits.shape[-1])
        uniform = torch.rand(len(rows), dtype=torch.float64, **source(generator, rows.device))
        return categorical(rows, uniform.to(rows.device)).reshape(logits.shape[:-1])

    def extremes(self, x: Tensor) -> tuple[Tensor, ...]:
        """The least and the greatest label."""
        return x.aminmax()

    def refuse(self, x: Tensor, extremes: list[float], *, density: bool) -> None:
        """Refuse negative labels; too large ones are refused where the classes are known."""
        if extremes[0] < 0:
            raise ValueError(f"x must be labels from 0 on, got {int(extremes[0])}")
        if self._classes is not None and extremes[1] >= self._classes:
            raise ValueError(
                f"x must be labels below {self._classes}, the classes of the decoder, got"
                f" {int(extremes[1])}"
            )

    _classes: int | None = None

    def _read(self, decoded: Any, x: Tensor) -> Tensor:
        logits = _tensor(decoded)
        if logits.ndim != x.ndim + 1 or (*logits.shape[:1], *logits.shape[2:]) != tuple(x.shape):
            wanted = f"({len(x)}, classes{''.join(f', {side}' for side in x.shape[1:])})"
            raise ValueError(
                f"decoder must return logits of shape {wanted}, got {tuple(logits.shape)}"
            )
        self._classes = logits.shape[1]
        return logits


Law = GaussianLaw | BernoulliLaw | CategoricalLaw


def _tensor(decoded: Any) -> Tensor:
    if not isinstance(decoded, Tensor):
        raise ValueError(f"decoder must return a tensor, got {type(decoded).__name__}")
    return decoded


def _beside(found: Tensor, x: Tensor, draws: int) -> tuple[Tensor, Tensor]:
    """What was decoded for some draws of the codes of x, and x beside it without a copy."""
    shape = (draws * len(x), *x.shape[1:])
    if tuple(found.shape) != shape:  # or one would broadcast to the other
        raise ValueError(f"decoder must return the shape of x, {shape}, got {tuple(found.shape)}")
    if draws == 1:
        return wide(found), wide(x)
    found = wide(found).reshape(draws, *x.shape)
    return found, wide(x).expand(found.shape)


def wide(t: Tensor) -> Tensor:
    """Sums over coordinates have many digits, of which half precision would lose most."""
    return t if t.dtype in _LONG else t.to(torch.promote_types(t.dtype, torch.float32))
