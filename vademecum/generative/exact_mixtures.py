r"""What an ideal network would predict where the data are a Gaussian mixture.

Data with the law $\sum_k \pi_k \mathcal N(\mu_k, \Sigma_k)$, noised to $x = s x_0 + \sigma
\epsilon$, follow a mixture again, with the means $s \mu_k$ and covariances $s^2 \Sigma_k + \sigma^2
I$. With $\Sigma_k = U_k \Lambda_k U_k^\top$, computed once, $V_k = s^2 \Lambda_k + \sigma^2$ and
$z_k = U_k^\top (x - s \mu_k)$,

$$\log p(x) = \log \sum_k \pi_k\, e^{\ell_k}, \qquad
\ell_k = -\tfrac12 \sum_i \Big(\frac{z_{ki}^2}{V_{ki}} + \log 2 \pi V_{ki}\Big), \qquad
r_k = \frac{\pi_k e^{\ell_k}}{p(x)},$$

and in the coordinates of each component all that a network may predict is linear in $z_k$:

$$\nabla \log p = -\sum_k r_k U_k \frac{z_k}{V_k}, \quad
\mathbb E[\epsilon \mid x] = \sum_k r_k U_k \frac{\sigma z_k}{V_k}, \quad
\mathbb E[x_0 \mid x] = \sum_k r_k \Big(\mu_k + U_k \frac{s \Lambda_k z_k}{V_k}\Big).$$

Nothing is divided by $s$ or $\sigma$, so both ends of time are exact, too. Logarithms are added up
in double precision, far from all modes as well. Exact up to rounding; the claim is
`noise_is_score`.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vademecum.arguments import choice, floats, probabilities, whole
from vademecum.arrays import portions
from vademecum.generative._component_axes import labels, spectrum
from vademecum.generative._marginals import Predicts, Process
from vademecum.randomness import source

__all__ = ["MixtureScore"]

# Examples times components times features at once, without a graph: on a CPU what its caches hold
# (0.2 s became 0.1 s for 10,000 examples, 10 components, 64 features), elsewhere 64 MiB an array.
_ENTRIES = {"cpu": 2**18, "other": 2**24}


class MixtureScore(nn.Module):
    r"""The exact noise, score, clean example or v of a Gaussian mixture, at every level of noise.

    It is a module that any sampler takes in place of a network, and a density as well.

    Args:
        weights: The weights of the components, (k,), which sum to one.
        means: Their means, (k, \*shape).
        covariances: Their covariances: variances (k,), diagonals (k, \*shape), or matrices
            (k, d, d) with d the entries of an example. All must be positive definite.
        process: What noises the examples: anything with `marginal(t)`.
        predicts: What a call gives: "noise", "x0", "v" or "score".

    Example:
        >>> from vademecum.generative import VPSDE
        >>> ball = torch.ones(1), torch.zeros(1, 2), torch.ones(1)
        >>> exact = MixtureScore(*ball, process=VPSDE(), predicts="score")
        >>> exact(torch.tensor([[1.0, -2.0]]), torch.tensor([0.3]))  # unit variance stays
        tensor([[-1.,  2.]])
    """

    def __init__(
        self,
        weights: Float[Tensor, " k"],
        means: Float[Tensor, " k *shape"],
        covariances: Float[Tensor, " k ..."],
        *,
        process: Process,
        predicts: Predicts = "noise",
    ):
        super().__init__()
        weights, means = probabilities("weights", weights), floats("means", means)
        if weights.ndim != 1 or means.ndim < 2 or len(means) != len(weights):
            raise ValueError(
                "means must be (k, *shape) for weights (k,), got"
                f" {tuple(means.shape)} and {tuple(weights.shape)}"
            )
        if not callable(getattr(process, "marginal", None)):
            raise ValueError(f"process must have marginal(t), got {type(process).__name__}")
        self.process = process
        self.predicts = choice("predicts", predicts, ("noise", "x0", "v", "score"))
        self.shape = tuple(means.shape[1:])
        rows = means.detach().flatten(1)
        spread, turn = spectrum(rows, self.shape, covariances)
        centres = rows if turn is None else torch.einsum("kd,kde->ke", rows.double(), turn).to(rows)
        self.log_weights: Tensor
        self.means: Tensor
        self.variances: Tensor
        self.turns: Tensor | None
        self.centres: Tensor
        self.register_buffer("log_weights", weights.log().to(rows))
        self.register_buffer("means", rows.clone())
        self.register_buffer("centres", centres.clone())  # the means along the axes
        self.register_buffer("variances", spread)  # along the axes of each component
        flat = None if turn is None else turn.movedim(1, 0).flatten(1).to(rows)
        self.register_buffer("turns", flat)  # (d, k d), those axes as columns, side by side

    def extra_repr(self) -> str:
        """The sizes."""
        k, d = self.means.shape
        return f"components={k}, d={d}, predicts={self.predicts!r}"

    def forward(
        self,
        x: Float[Tensor, " n *shape"],
        t: Tensor,
        context: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, " n *shape"]:
        """What a perfectly trained network would say of noised examples.

        Args:
            x: Noised examples.
            t: Their times, (n,), or one for all.
            context: The component that each example came from, -1 where that is not known; by
                default of none.
        """
        return self._predicted(self.predicts, x, t, context)

    def score(self, x: Float[Tensor, " n *shape"], t: Tensor | float = 0) -> Tensor:
        """The gradient of the log-density of examples noised up to a time; 0 is clean.

        Args:
            x: Examples.
            t: Their times, (n,), or one for all.

        Example:
            >>> from vademecum.generative import VPSDE
            >>> two = torch.tensor([0.5, 0.5]), torch.tensor([[-1.0], [1.0]]), torch.ones(2)
            >>> MixtureScore(*two, process=VPSDE()).score(torch.tensor([[0.0], [2.0]])).T
            tensor([[ 0.0000, -1.0360]])
        """
        return self._predicted("score", x, self._time(t), None)

    def log_prob(
        self,
        x: Float[Tensor, " n *shape"],
        context: Int[Tensor, " n"] | None = None,
        *,
        t: Tensor | float | None = None,
    ) -> Float[Tensor, " n"]:
        """The log-density of examples, clean or noised up to a time.

        Args:
            x: Examples.
            context: The component that each came from, as for a call.
            t: Their times, (n,), or one for all; by default they are clean.

        Example:
            >>> from vademecum.generative import VPSDE
            >>> ball = torch.ones(1), torch.zeros(1, 2), torch.ones(1)
            >>> MixtureScore(*ball, process=VPSDE()).log_prob(torch.zeros(1, 2))  # -log 2 pi
            tensor([-1.8379])
        """
        parts = self._terms(x, self._time(0 if t is None else t), context)
        return torch.cat([joint.logsumexp(0) for _, joint, _, _ in parts]).to(x.dtype)

    def sample(
        self,
        n: int,
        context: Int[Tensor, " n"] | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, " n *shape"]:
        """Draw clean examples.

        Args:
            n: How many.
            context: The components they come from, -1 for any; by default any.
            generator: Where random numbers come from; torch's global generator by default.

        Example:
            >>> from vademecum.generative import VPSDE
            >>> far = torch.tensor([0.5, 0.5]), torch.tensor([[-9.0], [9.0]]), torch.ones(2)
            >>> mixture = MixtureScore(*far, process=VPSDE())
            >>> mixture.sample(3, torch.tensor([0, 1, 1])).sign().T
            tensor([[-1.,  1.,  1.]])
        """
        n, dice = whole("n", n, low=0), source(generator, self.means.device)
        drawn = torch.multinomial(self.log_weights.exp().to(dice["device"]), max(n, 1),
                                  replacement=True, generator=generator)[:n]  # fmt: skip
        which = drawn.to(self.means.device)
        if context is not None:
            which = torch.where(context < 0, which, labels(context, n, len(self.means)))
        noise = torch.randn(n, self.means.shape[1], dtype=self.means.dtype, **dice)
        noise = noise.to(self.means.device) * self.variances[which].sqrt()
        if self.turns is not None:
            axes = self.turns.reshape(len(self.turns), *self.means.shape).movedim(1, 0)
            noise = (axes[which] @ noise[..., None])[..., 0]
        return (self.means[which] + noise).reshape(n, *self.shape)

    def _time(self, t: Any) -> Tensor:
        return t if isinstance(t, Tensor) else torch.tensor(t, device=self.means.device)

    def _predicted(self, kind: str, x: Tensor, t: Tensor, context: Tensor | None) -> Tensor:
        found = [
            self._average(kind, joint.softmax(0).to(pull.dtype), pull, *level)
            for pull, joint, *level in self._terms(x, t, context)
        ]
        return torch.cat(found, 1).T.reshape(x.shape).to(x.dtype)

    def _terms(
        self, x: Tensor, t: Tensor, context: Tensor | None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """For portions of the examples z / V (k, d, n), joint log-densities (k, n), s and sigma.

        Examples come last, so that operations run along them however few features there are.
        """
        self._refuse(x, t)
        if t.ndim and len(t) > 1 and t.stride(0) == 0:  # one time, repeated for all examples
            t = t[:1]
        level = [value.to(x.device).reshape(1, 1, -1) for value in self.process.marginal(t)]
        prior = self._log_prior(context, len(x))
        rows = x.flatten(1).to(torch.promote_types(self.means.dtype, x.dtype))
        for part in self._portions(rows):
            scale, std, own = (v[..., part] if v.shape[-1] > 1 else v for v in (*level, prior))
            pull, density = self._pulls(rows[part], scale, std)
            yield pull, density + own, scale.to(rows), std.to(rows)

    def _pulls(self, x: Tensor, scale: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        k, d = self.means.shape
        spread = scale**2 * self.variances[..., None] + std**2
        turned = x.T.contiguous() if self.turns is None else self.turns.to(x).T @ x.T
        shape = (1 if self.turns is None else k, d, len(x))
        z = turned.view(shape) - (scale * self.centres[..., None]).to(x)
        pull = z / spread.to(x)
        size = (z.double() * pull.double()).sum(1) + spread.log().sum(1)
        return pull, -(size + d * math.log(2 * math.pi)) / 2

    def _log_prior(self, context: Tensor | None, n: int) -> Tensor:
        prior = self.log_weights.double()[:, None]
        if context is None:
            return prior
        which = labels(context, n, len(prior))
        own = torch.arange(len(prior), device=which.device)[:, None] == which
        known = torch.zeros_like(own, dtype=torch.float64).masked_fill(~own, -torch.inf)
        return torch.where(which < 0, prior, known)

    def _average(
        self, kind: str, share: Tensor, pull: Tensor, scale: Tensor, std: Tensor
    ) -> Tensor:
        """The mean over components of what each of them predicts, (d, n)."""
        share = share[:, None]
        if kind in ("noise", "score"):
            return self._turned_back(pull * (share * std if kind == "noise" else -share))
        inner = scale * self.variances.to(pull)[..., None]
        centre = self.means.to(pull).T @ share[:, 0]
        if kind == "x0":
            return self._turned_back(pull * share * inner) + centre
        return self._turned_back(pull * (share * std) * (scale - inner)) - std[0] * centre

    def _turned_back(self, parts: Tensor) -> Tensor:
        if self.turns is None:
            return parts.sum(0)
        return self.turns.to(parts) @ parts.flatten(0, 1)

    def _portions(self, rows: Tensor) -> list[slice]:
        if torch.is_grad_enabled() and rows.requires_grad:  # a graph keeps all of it anyway
            return [slice(None)]
        entries = _ENTRIES.get(rows.device.type, _ENTRIES["other"])
        return portions(len(rows), each=self.means.numel(), memory=entries) or [slice(None)]

    def _refuse(self, x: Tensor, t: Tensor) -> None:
        if x.ndim < 2 or tuple(x.shape[1:]) != self.shape or not x.is_floating_point():
            raise ValueError(
                f"x must be floating point of shape (n, {', '.join(map(str, self.shape))}), got"
                f" {x.dtype} of shape {tuple(x.shape)}"
            )
        if t.ndim > 1 or (t.ndim and len(t) not in (1, len(x))):
            raise ValueError(f"t must be one time or {len(x)}, got shape {tuple(t.shape)}")
        if x.device != self.means.device:
            raise ValueError(f"x must be on {self.means.device}, as the means, got {x.device}")
