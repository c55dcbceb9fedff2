"""Rows of the room `generative`: probabilistic PCA and factor analysis."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.decomposition import FactorAnalysis as Peer

from bench.harness import Row, Skipped, in_turn
from vademecum.data import load
from vademecum.generative import FactorAnalysis, ProbabilisticPCA

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    if device.type == "cpu":
        yield from in_turn(_images())


def _images() -> Iterator[Row]:
    a = load("fashion_mnist").x.flatten(1).numpy()
    part = a[:5000]

    def as_likely(ours: Any, peer: Any) -> None:
        """Ours is no less likely; scikit-learn's iteration may end early, and says so or not."""
        gap = ours.score(part) - peer.score(part)
        assert gap > -0.05, f"less likely by {-gap}"

    def same(ours: Any, peer: Any) -> None:
        """One model, up to their divisor n - 1 and the rounding of single precision."""
        np.testing.assert_allclose(ours.noise_variance_, peer.noise_variance_, rtol=1e-3)
        gap = ours.score(part) - peer.score(part)
        assert abs(gap) < 0.05, f"likelihoods differ by {gap}"

    yield Row("FactorAnalysis, 20 factors, Fashion-MNIST", lambda: FactorAnalysis(20).fit(a),
              {"scikit-learn": lambda: Peer(20, random_state=0).fit(a)}, as_likely,
              "37 GFLOP for the covariance: 0.23 s at 165 GFLOP/s", rounds=3)  # fmt: skip
    yield Row("ProbabilisticPCA, 50 factors, Fashion-MNIST", lambda: ProbabilisticPCA(50).fit(a),
              {"scikit-learn PCA": lambda: PCA(50).fit(a)}, same,
              "37 GFLOP: 0.23 s at 165 GFLOP/s", rounds=5)  # fmt: skip
    model, peer = FactorAnalysis(20).fit(a), Peer(20, random_state=0).fit(a)
    yield Row("log-densities of 60,000 images under 20 factors", lambda: model.score_samples(a),
              {"scikit-learn": lambda: peer.score_samples(a)}, _finite, rounds=3)  # fmt: skip


def _finite(ours: np.ndarray, peer: np.ndarray) -> None:
    """Two fits of one model: the mean log-densities are close."""
    assert np.isfinite(ours).all()
    assert abs(ours.mean() - peer.mean()) < 0.5, "means differ"
