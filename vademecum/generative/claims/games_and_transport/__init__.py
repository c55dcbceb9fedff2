"""Divergences, games and transport: what a model is told of its mistakes, and by whom."""

from vademecum.generative.claims.games_and_transport import (
    adversarial_equilibria,
    adversarial_games,
    adversarial_training,
    collapsed_modes,
    critics,
    divergence_directions,
    implicit_models,
    missed_and_made_up,
    transport_games,
    vanishing_gradients,
)

__all__ = [
    "divergence_directions",
    "missed_and_made_up",
    "implicit_models",
    "adversarial_games",
    "adversarial_equilibria",
    "adversarial_training",
    "vanishing_gradients",
    "collapsed_modes",
    "transport_games",
    "critics",
]
