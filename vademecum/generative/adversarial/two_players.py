r"""Generative adversarial networks: a generator $x = G(z)$, and a discriminator that judges it.

The discriminator gives a logit $a(x)$, $D = \sigma(a)$ being its probability that $x$ is real; the
game is

$$\min_G \max_D V, \qquad V = \mathbb E_{x \sim p} \log D(x) + \mathbb E_{z} \log(1 - D(G(z))) .$$

With the objective "wasserstein" it is a critic, whose values are not bounded, and the game is
$\mathbb E_p\, a - \mathbb E_z\, a(G(z))$ under a Lipschitz constraint. Expectations are means over
a batch and as many codes $z$, all else is exact. Checked by `generative.gan_objective`,
`generative.gan_training`, `generative.wgan_critic` and what follows them.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, number, whole
from vademecum.generative.adversarial._lipschitz import (
    clip_parameters,
    gradient_penalty,
    refuse_batch_normalisation,
)
from vademecum.generative.adversarial._player_losses import (
    Objective,
    generated_term,
    generator_term,
    real_term,
)
from vademecum.generative.adversarial._refusals import (
    called,
    insist_on_batch,
    insist_on_finite,
    insist_on_two,
)
from vademecum.models import constant, resting
from vademecum.randomness import source

__all__ = ["GAN"]

Constraint = Literal["clip", "gradient-penalty"]
PLAYERS = ("discriminator", "generator")


class GAN(nn.Module):
    """A generator and a discriminator, and what each of them pays.

    Args:
        generator: The network that turns codes (n, latent_dim) into examples (n, ...); with a
            context it is called with both.
        discriminator: The network that judges examples by logits, (n,) or (n, 1), or a map of them
            for each example, whose losses are averaged; with a context it is called with both.
        latent_dim: How long a code is.
        objective: "saturating" is the game as it is written; "non-saturating" lets the generator
            maximise the mean of log D, which has a gradient where examples are rejected;
            "wasserstein" takes logits as they are, those of a critic.
        constraint: What bounds the critic's slope: None (nothing, or layers of its own), "clip"
            (call `clip` after each of its steps) or "gradient-penalty" (a term of its loss).
        prior: The law of codes: "normal" (standard) or "uniform" on [0, 1].
        clip_at: The largest absolute value that "clip" leaves a parameter.
        penalty: The factor of the gradient penalty.

    Raises:
        ValueError: If the players share parameters, the discriminator ends with a sigmoid, or it
            has batch normalisation and a gradient penalty.

    Example:
        >>> gan = GAN(nn.Linear(2, 3), nn.Linear(3, 1), latent_dim=2)
        >>> _ = [nn.init.zeros_(p) for p in gan.discriminator.parameters()]
        >>> losses = gan.losses(torch.randn(8, 3))  # of a discriminator that always says 1/2
        >>> {player: round(loss.exp().item(), 4) for player, loss in losses.items()}
        {'discriminator': 4.0, 'generator': 2.0}
        >>> gan.sample(5).shape
        torch.Size([5, 3])
    """

    def __init__(
        self,
        generator: nn.Module,
        discriminator: nn.Module,
        *,
        latent_dim: int,
        objective: Objective = "non-saturating",
        constraint: Constraint | None = None,
        prior: Literal["normal", "uniform"] = "normal",
        clip_at: float = 0.01,
        penalty: float = 10.0,
    ):
        super().__init__()
        self.latent_dim = whole("latent_dim", latent_dim, low=1)
        choice("objective", objective, get_args(Objective))
        if constraint not in (None, *get_args(Constraint)):
            words = "None, 'clip', 'gradient-penalty'"
            raise ValueError(f"constraint must be one of {words}, got {constraint!r}")
        choice("prior", prior, ("normal", "uniform"))
        self.objective: Objective = objective
        self.constraint, self.prior = constraint, prior
        self.clip_at = number("clip_at", clip_at, above=0.0)
        self.penalty = number("penalty", penalty, low=0.0)
        insist_on_two(generator, discriminator)
        if constraint == "gradient-penalty":
            refuse_batch_normalisation(discriminator)
        self.generator, self.discriminator = generator, discriminator

    def forward(self, z: Float[Tensor, " n latent"], context: Tensor | None = None) -> Tensor:
        """The examples that codes stand for.

        Args:
            z: Codes.
            context: What each example is to be like, in as many rows.
        """
        if z.ndim != 2 or z.shape[1] != self.latent_dim:
            raise ValueError(f"z must have shape (n, {self.latent_dim}), got {tuple(z.shape)}")
        return called("generator", self.generator, z, context)

    def losses(
        self,
        batch: Float[Tensor, " n *shape"],
        *,
        players: Sequence[str] = PLAYERS,
        context: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """What each player pays, with gradients to its own parameters and no others.

        Both are taken at the present players. For alternating steps ask for one player, take its
        step, then ask for the other.

        Args:
            batch: Real examples.
            players: Whose losses to compute; a pass costs nothing for who is not asked for.
            context: What each example is like, in as many rows; both networks get it.
            generator: Where random numbers come from; torch's global generator by default.

        Raises:
            ValueError: If a loss is NaN or infinite; it says which of its terms is.
        """
        insist_on_batch(batch, next(self.parameters(), None))
        if not players or not set(players) <= set(PLAYERS):
            raise ValueError(f"players must be among {', '.join(PLAYERS)}, got {players!r}")
        z = self._codes(len(batch), batch, generator)
        with torch.set_grad_enabled("generator" in players and torch.is_grad_enabled()):
            generated = self(z, context)
        if generated.shape != batch.shape:
            raise ValueError(
                "generator must give examples shaped like the batch,"
                f" {tuple(batch.shape)}, got {tuple(generated.shape)}"
            )
        terms: dict[tuple[str, str], Tensor] = {}
        if "discriminator" in players:
            for name, term in self._judging(batch, generated.detach(), context, generator):
                terms["discriminator", name] = term
        if "generator" in players:
            with constant(self.discriminator):
                logits = self._logits(generated, context)
            terms["generator", "generated examples"] = generator_term(self.objective, logits)
        insist_on_finite(terms, batch)
        paid: dict[str, Tensor] = {}
        for (player, _), term in terms.items():
            paid[player] = paid[player] + term if player in paid else term
        return paid

    @torch.no_grad()
    def sample(
        self, n: int, context: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """New examples, of the generator in evaluation mode and without gradients.

        Args:
            n: How many.
            context: What each is to be like, in n rows.
            generator: Where random numbers come from; torch's global generator by default.
        """
        z = self._codes(whole("n", n, low=1), next(self.generator.parameters(), None), generator)
        with resting(self.generator):
            return self(z, context)

    def clip(self) -> None:
        """Put the discriminator's parameters into [-clip_at, clip_at], after a step of it.

        Raises:
            ValueError: If the constraint is another one.
        """
        if self.constraint != "clip":
            raise ValueError(f"constraint must be 'clip' to clip, got {self.constraint!r}")
        clip_parameters(self.discriminator, self.clip_at)

    def extra_repr(self) -> str:
        """The game that is played."""
        return (
            f"latent_dim={self.latent_dim}, objective={self.objective!r},"
            f" constraint={self.constraint!r}, prior={self.prior!r}"
        )

    def _judging(
        self, batch: Tensor, generated: Tensor, context: Tensor | None, numbers: Any
    ) -> Iterator[tuple[str, Tensor]]:
        """The terms that the discriminator pays, by their names."""
        yield "real examples", real_term(self.objective, self._logits(batch, context))
        yield "generated examples", generated_term(self.objective, self._logits(generated, context))
        if self.constraint == "gradient-penalty":

            def critic(x: Tensor) -> Tensor:
                return self._logits(x, context)

            found = gradient_penalty(critic, batch, generated, numbers)
            yield "gradient penalty", self.penalty * found

    def _logits(self, x: Tensor, context: Tensor | None) -> Tensor:
        return called("discriminator", self.discriminator, x, context)

    def _codes(self, n: int, like: Tensor | None, generator: torch.Generator | None) -> Tensor:
        own = next((p for p in self.generator.parameters() if p.is_floating_point()), like)
        dtype = torch.get_default_dtype() if own is None else own.dtype
        device = torch.get_default_device() if own is None else own.device
        draw = torch.randn if self.prior == "normal" else torch.rand
        z = draw(n, self.latent_dim, dtype=dtype, **source(generator, device))
        return z.to(device)
