r"""The autoencoder, with what makes its code robust: noise, contraction, sparsity.

$$\ell(x) = \|x - D(E(\tilde x))\|^2 + \lambda\, \|\partial E / \partial x\|_F^2 + \mu\, \|E(\tilde
x)\|_1$$

in mean over the examples, where $\tilde x$ is the example, or in training mode the example with
noise for a denoising autoencoder: added, or as coordinates set to zero. The Jacobian of the encoder
(at $\tilde x$) is exact, a backward pass for each entry of the code, and can itself be
differentiated. With linear maps and centred data of covariance $S$ no pair with a code of $m$
numbers has a loss below $\sum_{i > m} \lambda_i(S)$. The claims are `autoencoder` and
`autoencoder_is_no_sampler`.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, floats, number
from vademecum.generative._bound_terms import readable
from vademecum.models import bilinear_convolutions, named_modules
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["Autoencoder", "AutoencoderTerms"]


class AutoencoderTerms(NamedTuple):
    """The terms of the loss of each example, before they are weighted.

    Example:
        >>> zero = torch.zeros(1)
        >>> AutoencoderTerms(torch.ones(1), zero, zero)
        AutoencoderTerms(reconstruction=tensor([1.]), contraction=tensor([0.]), sparsity=tensor...
    """

    reconstruction: Float[Tensor, " n"]
    """The squared distance of the example and its reconstruction."""
    contraction: Float[Tensor, " n"]
    """The squared Frobenius norm of the encoder's Jacobian; zero where it has no weight."""
    sparsity: Float[Tensor, " n"]
    """The sum of the sizes of the code's entries; zero where it has no weight."""

    __repr__ = one_line


class Autoencoder(nn.Module):
    r"""Two modules that copy examples through a code.

    Args:
        encoder: A module that maps examples (n, ...) to codes (n, ...).
        decoder: A module that maps codes back, to the shape of the examples.
        denoising: How much noise is put on what the encoder sees, in training mode: a standard
            deviation, or the probability that a coordinate is lost.
        corruption: Of which kind the noise is: "gaussian", or "masking" for zeros.
        contractive: The weight $\lambda$ of the encoder's squared Jacobian.
        sparse: The weight $\mu$ of the sizes of the code's entries.

    References:
        Vincent, Larochelle, Bengio and Manzagol, Extracting and composing robust features with
        denoising autoencoders, ICML, 2008.
        Rifai, Vincent, Muller, Glorot and Bengio, Contractive auto-encoders: explicit invariance
        during feature extraction, ICML, 2011.

    Example:
        >>> model = Autoencoder(nn.Identity(), nn.Identity(), contractive=0.1, sparse=0.5)
        >>> x = torch.tensor([[3.0, -1.0]])
        >>> model.loss(x)  # nothing is lost, the Jacobian is I: 0.1 * 2 + 0.5 * 4
        tensor(2.2000, grad_fn=<AddBackward0>)
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        *,
        denoising: float = 0.0,
        corruption: Literal["gaussian", "masking"] = "gaussian",
        contractive: float = 0.0,
        sparse: float = 0.0,
    ):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.corruption = choice("corruption", corruption, ("gaussian", "masking"))
        most = 1.0 if corruption == "masking" else float("inf")
        self.denoising = number("denoising", denoising, low=0, high=most)
        self.contractive = number("contractive", contractive, low=0)
        self.sparse = number("sparse", sparse, low=0)

    def encode(self, x: Tensor) -> Tensor:
        """The codes of examples."""
        code = self.encoder(x)
        if not isinstance(code, Tensor) or code.ndim < 2 or len(code) != len(x):
            given = tuple(code.shape) if isinstance(code, Tensor) else type(code).__name__
            raise ValueError(
                f"encoder must return a row for each of {len(x)} examples, got {given}"
            )
        return code

    def decode(self, z: Tensor) -> Tensor:
        """The examples that codes stand for."""
        return self.decoder(z)

    def forward(self, x: Tensor) -> Tensor:
        """The reconstructions of examples as they are."""
        return self.decode(self.encode(x))

    def terms(self, x: Tensor, *, generator: torch.Generator | None = None) -> AutoencoderTerms:
        """The terms of the loss of each example.

        Args:
            x: The examples, (n, ...).
            generator: Where random numbers come from; torch's global generator by default.

        Raises:
            ValueError: If a term is NaN or infinite, with its name; if shapes do not fit, or the
                encoder's batch normalisation ties the examples whose Jacobians are wanted.
        """
        if not isinstance(x, Tensor) or not x.is_floating_point() or not x.numel():
            floats("x", x)
        seen = self._corrupted(x, generator)
        code, contraction = self._contracted(seen)
        found = self.decode(code)
        if found.shape != x.shape:
            raise ValueError(
                f"decoder must return the shape of x, {tuple(x.shape)}, got {tuple(found.shape)}"
            )
        rows, wide = (len(x), -1), torch.promote_types(x.dtype, torch.float32)  # sums have digits
        square = nn.functional.mse_loss(found.to(wide), x.to(wide), reduction="none")
        square = square.reshape(rows).sum(1)
        sizes = code.to(wide).abs().reshape(rows)
        sparsity = sizes.sum(1) if self.sparse else torch.zeros_like(square)
        terms = AutoencoderTerms(square, contraction.to(square.dtype), sparsity)
        _insist_on_numbers(x, terms)
        return terms

    def loss(self, x: Tensor, *, generator: torch.Generator | None = None) -> Float[Tensor, ""]:
        """The mean over the examples of all terms, weighted.

        Args:
            x: The examples, (n, ...).
            generator: Where random numbers come from; torch's global generator by default.

        Raises:
            ValueError: As `terms` does.
        """
        terms = self.terms(x, generator=generator)
        total = terms.reconstruction.mean()
        if self.contractive:
            total = total + self.contractive * terms.contraction.mean()
        return total + self.sparse * terms.sparsity.mean() if self.sparse else total

    def _corrupted(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        if not (self.training and self.denoising):
            return x
        draw = torch.randn if self.corruption == "gaussian" else torch.rand
        noise = draw(x.shape, dtype=x.dtype, **source(generator, x.device)).to(x.device)
        if self.corruption == "gaussian":
            return x + self.denoising * noise
        return x * (noise >= self.denoising)

    def _contracted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The codes, and the squared norms of the encoder's Jacobian."""
        if not self.contractive:
            return self.encode(x), x.new_zeros(len(x))
        _refuse_ties(self.encoder)
        wanted = torch.is_grad_enabled()
        with torch.enable_grad(), bilinear_convolutions():
            at = x if x.requires_grad else x.detach().requires_grad_()
            code = self.encode(at)
            norm = x.new_zeros(len(x), dtype=torch.promote_types(x.dtype, torch.float32))
            for total in code.reshape(len(x), -1).sum(0):  # examples do not influence each other
                (row,) = torch.autograd.grad(
                    total, at, create_graph=wanted, retain_graph=True, materialize_grads=True
                )
                norm = norm + row.to(norm.dtype).reshape(len(x), -1).square().sum(1)
        return (code, norm) if wanted else (code.detach(), norm.detach())

    def extra_repr(self) -> str:
        """What is not a module."""
        noise = f"denoising={self.denoising}, corruption={self.corruption!r}"
        return f"{noise}, contractive={self.contractive}, sparse={self.sparse}"


def _refuse_ties(encoder: nn.Module) -> None:
    for name, module in named_modules(encoder):
        ties = isinstance(module, nn.modules.batchnorm._BatchNorm)
        if ties and (module.training or module.running_mean is None):
            raise ValueError(
                f"contractive must be 0 for an encoder with {type(module).__name__} {name[:-1]!r}"
                " in training mode, which ties the examples of a batch: use LayerNorm or eval()"
            )


def _insist_on_numbers(x: Tensor, terms: AutoencoderTerms) -> None:
    if not readable(x):
        return
    sums = torch.stack([term.detach().sum() for term in terms])
    for name, term, total in zip(terms._fields, terms, sums.tolist(), strict=True):
        if not -float("inf") < total < float("inf"):
            floats("x", x)
            bad = term[~torch.isfinite(term)]
            said = bad[0].item() if len(bad) else total
            raise ValueError(f"the {name} term is {said}: what the modules return is not finite")
