r"""The variational autoencoder: factor analysis with networks.

A code $z \sim \mathcal N(0, I)$ and a decoder $p_\theta(x \mid z)$ make a law of examples, and an
encoder $q_\phi(z \mid x) = \mathcal N(\mu_\phi(x), \mathrm{diag}\, \sigma_\phi^2(x))$ makes its
likelihood tractable from below:

$$\log p_\theta(x) \ge \mathbb E_q[\log p_\theta(x \mid z)] - \mathrm{KL}(q \| \mathcal N(0, I)),
\qquad \mathrm{KL} = \tfrac12 \sum_j (\mu_j^2 + \sigma_j^2 - 1 - \log \sigma_j^2).$$

The first term, the reconstruction, is estimated without bias from one draw of the code; the KL term
is exact, and the gap is $\mathrm{KL}(q \| p_\theta(z \mid x))$. With $k$ draws the bound
$\log \frac1k \sum_i p_\theta(x, z_i) / q_\phi(z_i \mid x)$ grows in mean, to $\log p_\theta(x)$.
The claims are `elbo`, `elbo_gap`, `variational_autoencoder` and `evidence_importance_form`.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arguments import choice, number, whole
from vademecum.generative._bound_terms import ELBO, Code, code_of, insist_on_terms, summed_terms
from vademecum.generative._code_calls import called, insist_on_examples, repeated
from vademecum.generative._code_moments import ActiveUnits, spread_of_means
from vademecum.generative._decoder_laws import BernoulliLaw, CategoricalLaw, GaussianLaw, Law, pair
from vademecum.generative._importance_weights import LogEvidence, log_evidence, rows_at_once
from vademecum.generative._scores_of_models import home
from vademecum.generative.reparameterisation import reparameterize
from vademecum.models import resting
from vademecum.randomness import source

__all__ = ["VAE"]


class VAE(nn.Module):
    r"""A law of examples with a hidden code, from any two modules.

    Args:
        encoder: A module that maps examples (n, ...) to the means and the log-variances of their
            codes: a tuple of two tensors (n, ...), or one tensor of twice the width along axis 1.
            With a context it is called as `encoder(x, context)`.
        decoder: A module that maps codes to what the likelihood needs: means in the shape of x,
            logits in the shape of x, or logits (n, classes, ...). With a context it is called as
            `decoder(z, context)`.
        likelihood: The law of an example given its code: "gaussian", "bernoulli" (bits, as
            floating-point numbers) or "categorical" (labels).
        beta: The weight of the KL term in `loss`; 1 for the evidence lower bound.
        noise: Of the Gaussian likelihood: the standard deviation of all coordinates; "learned", one
            number that is a parameter; or "predicted", for which the decoder returns means and
            log-variances as the encoder does.
        grey: Of the Bernoulli likelihood: whether x may hold values between 0 and 1. They are then
            probabilities of bits, and the bound is that of random bits, averaged over them; they
            have no density, so that `log_prob` and `iwae_bound` refuse them.
        latent: The width of a code, or its shape; by default that of the codes encoded last, so
            that `sample` works once something was encoded.

    References:
        Kingma and Welling, Auto-encoding variational Bayes, ICLR, 2014.
        Rezende, Mohamed and Wierstra, Stochastic backpropagation and approximate inference in deep
        generative models, ICML, 2014.
        Burda, Grosse and Salakhutdinov, Importance weighted autoencoders, ICLR, 2016.

    Example:
        >>> vae = VAE(nn.Linear(3, 4), nn.Linear(2, 3))
        >>> optimizer = torch.optim.Adam(vae.parameters(), lr=0.05)
        >>> x = torch.randn(500, 1) @ torch.tensor([[2.0, 1.0, -2.0]]) + 0.5 * torch.randn(500, 3)
        >>> for _ in range(300):
        ...     optimizer.zero_grad()
        ...     vae.loss(x).backward()
        ...     optimizer.step()
        >>> vae.active_units(x).number, vae.sample(5).shape  # the data have one factor
        (1, torch.Size([5, 3]))
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        *,
        likelihood: Literal["gaussian", "bernoulli", "categorical"] = "gaussian",
        beta: float = 1.0,
        noise: float | Literal["learned", "predicted"] = 1.0,
        grey: bool = False,
        latent: int | tuple[int, ...] | None = None,
    ):
        super().__init__()
        choice("likelihood", likelihood, ("gaussian", "bernoulli", "categorical"))
        if noise != 1.0 and likelihood != "gaussian":
            raise ValueError(f"noise is that of the Gaussian likelihood, got {noise!r}")
        if grey and likelihood != "bernoulli":
            raise ValueError("grey values are a matter of the Bernoulli likelihood, got grey=True")
        self.encoder, self.decoder, self.likelihood = encoder, decoder, likelihood
        self.beta = number("beta", beta, low=0)
        self.law: Law = (
            GaussianLaw(noise) if likelihood == "gaussian"
            else BernoulliLaw(grey=grey) if likelihood == "bernoulli" else CategoricalLaw()
        )  # fmt: skip
        sides = latent if isinstance(latent, tuple) or latent is None else (latent,)
        self.latent = sides and tuple(whole("latent", side, low=1) for side in sides)
        self._given = self.latent is not None

    def encode(self, x: Tensor, context: Tensor | None = None) -> Code:
        """The means and log-variances of the codes of examples."""
        insist_on_examples(self.likelihood, x, context)
        mean, log_variance = pair("encoder", called(self.encoder, x, context))
        if len(mean) != len(x):
            raise ValueError(f"encoder must return {len(x)} rows, as many as x, got {len(mean)}")
        shape = tuple(mean.shape[1:])
        if self._given and shape != self.latent:
            raise ValueError(f"encoder must return codes of shape {self.latent}, got {shape}")
        self.latent = shape
        return code_of(mean, log_variance)

    def decode(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """The mean of an example given its code: for bits and labels, probabilities."""
        return self.law.mean(called(self.decoder, z, context))

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """The reconstructions: decoded means of the codes; in training mode decoded draws."""
        code = self.encode(x, context)
        return self.decode(reparameterize(*code) if self.training else code.mean, context)

    def elbo(
        self, x: Tensor, context: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> ELBO:
        """The evidence lower bound of each example, its reconstruction from one draw of the code.

        Args:
            x: The examples, (n, ...).
            context: What examples depend on, a row for each, for modules that take it.
            generator: Where random numbers come from; torch's global generator by default.

        Raises:
            ValueError: If a term is NaN or infinite, with its name and what made it so; if x is not
                what the likelihood is for, or modules return other shapes than they should.
        """
        code = self.encode(x, context)
        decoded = called(self.decoder, reparameterize(*code, generator=generator), context)
        terms = ELBO.of(self.law.log_prob(decoded, x), code)
        insist_on_terms(self.law, x, code, decoded, terms)
        return terms

    def loss(
        self, x: Tensor, context: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Float[Tensor, ""]:
        r"""Minus the mean of $\mathrm{reconstruction} - \beta\, \mathrm{KL}$: what to minimise.

        Args:
            x: The examples, (n, ...).
            context: What examples depend on, a row for each, for modules that take it.
            generator: Where random numbers come from; torch's global generator by default.

        Raises:
            ValueError: As `elbo` does.
        """
        code = self.encode(x, context)
        decoded = called(self.decoder, reparameterize(*code, generator=generator), context)
        fit, twice = summed_terms(self.law, x, code, decoded)
        return (twice * (self.beta / 2) - fit) / len(x)

    def iwae_bound(
        self,
        x: Tensor,
        k: int,
        context: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, " n"]:
        r"""The importance-weighted bound of each example, $\log \frac1k \sum_i w_i$.

        In mean it grows with `k`, from the evidence lower bound to the log-likelihood. It can be
        differentiated: its mean is a loss, too.

        Args:
            x: The examples, (n, ...).
            k: How many codes are drawn for each.
            context: What examples depend on, a row for each, for modules that take it.
            generator: Where random numbers come from; torch's global generator by default.

        Raises:
            ValueError: As `elbo` does.
        """
        whole("k", k, low=1)
        code = self.encode(x, context)
        log_weights = self._log_weights(x, code, context, k, generator)
        return log_weights.logsumexp(0) - math.log(k)

    def log_prob(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        k: int = 1000,
        memory: int | None = None,
        progress: bool = False,
        generator: torch.Generator | None = None,
    ) -> LogEvidence:
        """The log-likelihood of each example, by importance sampling with the encoder's law.

        Modules are in evaluation mode meanwhile, and no gradients are kept. A `ConvergenceWarning`
        says if the draws of an example are worth fewer than five: then the encoder is far from the
        posterior, and the standard error says little.

        Args:
            x: The examples, (n, ...).
            context: What examples depend on, a row for each, for modules that take it.
            k: How many codes are drawn for each.
            memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
            progress: Whether to show a progress bar on standard error.
            generator: Where random numbers come from; torch's global generator by default.

        Raises:
            ValueError: As `elbo` does.
        """
        whole("k", k, low=1)
        insist_on_examples(self.likelihood, x, context)

        def begin(here: slice) -> Callable[[int], Tensor]:
            some, beside = x[here], None if context is None else context[here]
            code = self.encode(some, beside)
            return lambda draws: self._log_weights(some, code, beside, draws, generator)

        with torch.no_grad(), resting(self):
            rows = rows_at_once(lambda few: begin(slice(len(few)))(1), x, memory)
            return log_evidence(begin, len(x), k, rows=rows, progress=progress)

    def sample(
        self,
        n: int,
        context: Tensor | None = None,
        *,
        mean: bool = False,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw codes from the prior, then examples from the decoder's law, in evaluation mode.

        Args:
            n: How many.
            context: What examples depend on, (n, ...), for decoders that take it.
            mean: Whether to give the mean of an example given its code, as pictures often do. Such
                means are no draws of the model: they lack the noise.
            generator: Where random numbers come from; torch's global generator by default.

        Raises:
            ValueError: If the shape of a code is not known yet.
        """
        if self.latent is None:
            raise ValueError("latent must be given to sample before anything was encoded")
        if context is not None and len(context) != whole("n", n, low=1):
            raise ValueError(f"context must have {n} rows, one for each draw, got {len(context)}")
        dtype, device = home(nn.ModuleList([self.decoder, self.law, self.encoder]), None, None)
        shape = (whole("n", n, low=1), *self.latent)
        z = torch.randn(shape, dtype=dtype, **source(generator, device))
        with torch.no_grad(), resting(self):
            decoded = called(self.decoder, z.to(device), context)
            return self.law.mean(decoded) if mean else self.law.draw(decoded, generator)

    def active_units(
        self, x: Tensor | DataLoader, context: Tensor | None = None, *, threshold: float = 0.01
    ) -> ActiveUnits:
        """Which coordinates of the code tell examples apart: those whose means vary over them.

        The encoder is in evaluation mode meanwhile.

        Args:
            x: The examples, two or more, or a `DataLoader`, from which they move to the
                encoder's device.
            context: What examples depend on, a row for each, for encoders that take it.
            threshold: The variance of the means above which a coordinate counts.
        """
        number("threshold", threshold, low=0)
        device = home(self.encoder, None, None)[1]
        with torch.no_grad(), resting(self):
            return spread_of_means(self.encode, x, context, threshold, device)

    def _log_weights(
        self, x: Tensor, code: Code, context: Tensor | None, k: int, g: torch.Generator | None
    ) -> Float[Tensor, " k n"]:
        mean, log_variance = code
        shape = (k, *mean.shape)
        noise = torch.randn(shape, dtype=mean.dtype, **source(g, mean.device)).to(mean.device)
        z = torch.addcmul(mean, (log_variance / 2).exp(), noise)
        decoded = called(self.decoder, z.flatten(0, 1), repeated(context, k))
        ratio = (noise.square() - z.square() + log_variance).flatten(2).sum(2) / 2
        fit = self.law.log_prob(decoded, x, draws=k).reshape(k, -1)
        terms = ELBO(fit.flatten(), -ratio.flatten(), (fit + ratio).flatten())
        insist_on_terms(self.law, x, code, decoded, terms, density=True)
        return fit + ratio

    def extra_repr(self) -> str:
        """What is not a module."""
        return f"likelihood={self.likelihood!r}, beta={self.beta}"
