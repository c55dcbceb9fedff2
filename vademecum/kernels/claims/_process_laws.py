"""Points, matrices and laws for claims on Gaussian processes."""

import math

import numpy as np
import torch

from vademecum.claims import Evidence, at_most

__all__ = ["by_hand", "follows", "gaussian", "grid", "seed"]

LEVEL = 1e-8  # of each test of a law, of which a claim makes fewer than 100


def seed() -> int:
    """One that the claim's own randomness decides."""
    return int(torch.randint(2**31, ()))


def by_hand(function, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The matrix of a function of two points, pair by pair."""
    return np.array([[function(a, b) for b in z] for a in x])


def gaussian(gamma: float):
    """The Gaussian kernel, of two points."""
    return lambda a, b: math.exp(-gamma * sum((s - t) ** 2 for s, t in zip(a, b, strict=True)))


def follows(name: str, draws: np.ndarray, law, **at) -> Evidence:
    """Draws follow a law: the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart."""
    n = len(draws)
    below = law.cdf(np.sort(draws))
    steps = np.arange(n + 1) / n
    distance = max(float((steps[1:] - below).max()), float((below - steps[:-1]).max()))
    return at_most(name, distance, math.sqrt(math.log(2 / LEVEL) / (2 * n)), tol=0.0, **at)


def grid(s: int, d: int) -> np.ndarray:
    """Points at least 0.8 apart: those of an integer grid, each coordinate moved by up to 0.1."""
    side = math.ceil(s ** (1 / d))
    places = np.array(list(np.ndindex(*[side] * d)), dtype=float)[:s]
    return places + 0.2 * torch.rand(s, d).numpy() - 0.1
