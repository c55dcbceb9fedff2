"""Two networks that play against each other, and the best answer of one of them."""

from vademecum.generative.adversarial.best_response import optimal_discriminator
from vademecum.generative.adversarial.two_players import GAN

__all__ = ["GAN", "optimal_discriminator"]
