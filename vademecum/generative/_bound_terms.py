r"""The terms of the evidence lower bound, and what is said where one of them is no number.

$$\mathrm{KL}\bigl(\mathcal N(\mu, \mathrm{diag}\, e^{v}) \,\|\, \mathcal N(0, I)\bigr) =
\tfrac12 \sum_j \bigl(\mu_j^2 + (e^{v_j} - 1) - v_j\bigr)$$

with $e^v - 1$ in one function, so that a code near its prior loses no digits. Whether all numbers
are in order is read from a device once for each bound; not at all while torch compiles or records a
CUDA graph, when nothing can be read.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats
from vademecum.generative._decoder_laws import Law, wide
from vademecum.models import named_tensors
from vademecum.results import one_line

__all__ = ["ELBO", "Code", "code_of", "insist_on_terms", "readable", "summed_terms"]


class Code(NamedTuple):
    """The law of codes given examples, of independent normal coordinates.

    Example:
        >>> Code(torch.zeros(1, 2), torch.zeros(1, 2)).log_variance
        tensor([[0., 0.]])
    """

    mean: Float[Tensor, " n *latent"]
    """The means."""
    log_variance: Float[Tensor, " n *latent"]
    """The logarithms of the variances."""

    __repr__ = one_line


def code_of(mean: Tensor, log_variance: Tensor) -> Code:
    """A code in single precision at least: half precision has few exponentials."""
    return Code(wide(mean), wide(log_variance))


class ELBO(NamedTuple):
    """The evidence lower bound of each example, and its two terms.

    Example:
        >>> code = Code(torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2))
        >>> ELBO.of(torch.tensor([-3.0]), code)  # the mean 1 costs 1/2
        ELBO(reconstruction=tensor([-3.]), kl=tensor([0.5000]), elbo=tensor([-3.5000]))
    """

    reconstruction: Float[Tensor, " n"]
    r"""An estimate of $\mathbb E_q[\log p(x \mid z)]$ from one draw of the code."""
    kl: Float[Tensor, " n"]
    r"""The divergence $\mathrm{KL}(q(z \mid x) \| p(z))$, exact."""
    elbo: Float[Tensor, " n"]
    """The reconstruction less the divergence, whatever the weight of the divergence in a loss."""

    __repr__ = one_line

    @classmethod
    def of(cls, reconstruction: Float[Tensor, " n"], code: Code) -> "ELBO":
        """The bound for the reconstruction of some codes."""
        kl = _divergences(code).reshape(len(code.mean), -1).sum(1) / 2
        return cls(reconstruction, kl, reconstruction - kl)


def _divergences(code: Code) -> Tensor:
    """Twice the divergence of each coordinate."""
    return code.mean.square() + (torch.expm1(code.log_variance) - code.log_variance)


def summed_terms(law: Law, x: Tensor, code: Code, decoded: Any) -> tuple[Tensor, Tensor]:
    """The reconstruction and twice the divergence of all examples together, as a loss needs them.

    The terms of each example are formed only where a sum is no number, to say which.
    """
    fit, twice = law.log_prob(decoded, x, total=True), _divergences(code).sum()
    if readable(x):
        *extremes, one, two = _read((*law.extremes(x), fit, twice))
        if not math.isfinite(one + two):
            terms = ELBO.of(law.log_prob(decoded, x), code)
            insist_on_terms(law, x, code, decoded, terms)
        law.refuse(x, extremes, density=False)
    return fit, twice


def _read(scalars: tuple[Tensor, ...]) -> list[float]:
    """Numbers from a device, for which it is waited once."""
    if scalars[-1].device.type == "cpu":
        return [s.item() for s in scalars]
    return torch.stack([s.detach().to(scalars[-1].dtype) for s in scalars]).tolist()


def readable(x: Tensor) -> bool:
    """Whether numbers can be read from a device now."""
    if x.device.type == "meta" or torch.compiler.is_compiling():
        return False
    return x.device.type != "cuda" or not torch.cuda.is_current_stream_capturing()


def insist_on_terms(
    law: Law, x: Tensor, code: Code, decoded: Any, terms: ELBO, *, density: bool = False
) -> None:
    """Refuse examples that the law is not for, and terms that are no numbers, by their names.

    Args:
        law: The law of examples given codes.
        x: The examples.
        code: The law of their codes.
        decoded: What the decoder returned.
        terms: The terms.
        density: Whether probabilities of x itself are asked for, not their mean over random bits.
    """
    if not readable(x):
        return
    *extremes, fit, kl = _read((*law.extremes(x), terms.reconstruction.sum(), terms.kl.sum()))
    if x.is_floating_point() and not math.isfinite(fit + kl):
        floats("x", x)
    law.refuse(x, extremes, density=density)
    if not math.isfinite(kl):
        raise ValueError(f"the KL term is {_first(terms.kl, len(x))}: {_blame_code(code)}")
    if not math.isfinite(fit):
        why = _blame_code(code, quiet=True) or _blame_decoder(decoded)
        raise ValueError(
            f"the reconstruction term is {_first(terms.reconstruction, len(x))}: {why}"
        )


def _first(values: Tensor, n: int) -> str:
    bad = (~torch.isfinite(values)).nonzero()
    if not len(bad):
        return "finite for each example and infinite in sum"
    return f"{values[bad[0, 0]].item()} for example {int(bad[0, 0]) % n}"


def _blame_code(code: Code, *, quiet: bool = False) -> str:
    for name, values in zip(("mean", "log-variance"), code, strict=True):
        bad = values[~torch.isfinite(values)]
        if len(bad):
            return f"the {name} that the encoder returned holds {bad[0].item()}"
    mean, log_variance = (float(v.detach().abs().max()) for v in code)
    return "" if quiet else (
        f"its exponential or square overflows {code.mean.dtype} where the encoder's log-variance"
        f" has size {log_variance:.4g} and its mean {mean:.4g}"
    )  # fmt: skip


def _blame_decoder(decoded: Any) -> str:
    for _, values in named_tensors(decoded):
        bad = values[~torch.isfinite(values)]
        if len(bad):
            return f"what the decoder returned holds {bad[0].item()}"
    return "it overflows, though what the decoder returned is finite"
