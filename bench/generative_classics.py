"""Rows of the room `generative`: Boltzmann machines, their constant, factors of bits."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import BernoulliRBM

from bench.harness import Row, Skipped, in_turn
from vademecum.data import load
from vademecum.generative import BernoulliNMF, RestrictedBoltzmannMachine

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    torch.manual_seed(0)
    yield from in_turn(_constant(device), _factors(device), _codes(device))
    if device.type == "cpu":
        yield from _machines()


def _machines() -> Iterator[Row]:
    """The same number of passes over images in black and white, and a likelihood no lower."""
    n, m = 5_000, 16
    x = (load("fashion_mnist").x[:n].flatten(1) > 0.5).float().numpy()
    for size in (10, 100):
        options = {"n_iter": 2, "batch_size": size, "learning_rate": 0.05, "random_state": 0}

        def agree(ours: RestrictedBoltzmannMachine, peer: BernoulliRBM) -> None:
            parts = peer.components_, peer.intercept_visible_, peer.intercept_hidden_
            copied = RestrictedBoltzmannMachine.from_parameters(*parts)
            assert ours.score(x[:500]) > copied.score(x[:500]) - 1, "our likelihood is lower"

        yield Row(
            f"RestrictedBoltzmannMachine, {n} clothes, {m} hidden units, batches of {size}",
            lambda o=options: RestrictedBoltzmannMachine(m, **o).fit(x),
            {"scikit-learn": lambda o=options: BernoulliRBM(m, **o).fit(x)},
            agree,
            rounds=3,
        )


def _constant(device: torch.device) -> Iterator[Row]:
    """All states of twenty units, against the sums of softplus that define it."""
    m, d = 20, 784
    W, a, b = (0.1 * torch.randn(*s, device=device) for s in ((m, d), (d,), (m,)))
    machine = RestrictedBoltzmannMachine.from_parameters(W, a, b)

    def plain() -> float:
        places = torch.arange(m, device=device)
        parts = []
        for numbers in torch.arange(2**m, device=device).split(2**12):
            h = (numbers[:, None] >> places & 1).double()
            inside = torch.addmm(a.double(), h, W.double())
            parts.append(h @ b.double() + torch.nn.functional.softplus(inside).sum(1))
        return float(torch.cat(parts).logsumexp(0))

    yield Row(
        f"log Z of {m} x {d} units, all states",
        lambda: machine.log_partition().value,
        {"plain torch": plain},
        lambda ours, peer: np.testing.assert_allclose(ours, peer, rtol=1e-10),
        "0.8e9 factors: 0.8 s at one multiplication and addition in a nanosecond",
        rounds=3,
    )


def _factors(device: torch.device) -> Iterator[Row]:
    """Thirty iterations of EM from the same start."""
    draw = np.random.default_rng(0)
    n, d, k = 5_000, 784, 10
    codes, patterns = draw.dirichlet([0.3] * k, n), draw.beta(0.3, 0.3, (k, d))
    x = (draw.random((n, d)) < codes @ patterns).astype(np.float32)
    Z = draw.dirichlet([1.0] * k, n).astype(np.float32)
    B = draw.uniform(0.25, 0.75, (k, d)).astype(np.float32)
    on = [torch.from_numpy(part).to(device) for part in (x, Z, B)]
    ours = x if device.type == "cpu" else on[0]
    model = BernoulliNMF(
        k, init=(Z, B) if device.type == "cpu" else tuple(on[1:]), max_iter=30, tol=0.0
    )
    peer = {"NumPy": lambda: _loop(x, Z, B)}
    if device.type == "cuda":
        peer = {"plain torch": lambda: _loop(*on)}

    def fitted() -> torch.Tensor:
        with warnings.catch_warnings():  # thirty iterations are not meant to converge
            warnings.simplefilter("ignore", ConvergenceWarning)
            return torch.as_tensor(model.fit(ours).components_)

    yield Row(
        f"BernoulliNMF, {n} x {d}, {k} patterns, 30 iterations",
        fitted,
        peer,
        lambda mine, theirs: torch.testing.assert_close(
            mine, torch.as_tensor(theirs), atol=1e-4, rtol=0
        ),
        rounds=3,
    )


def _codes(device: torch.device) -> Iterator[Row]:
    """The best codes for patterns that are known, to the same gap: steps of Newton against EM."""
    draw = np.random.default_rng(0)
    n, d, k, tol = 1_000, 784, 10, 1e-3
    codes, patterns = draw.dirichlet([0.3] * k, n), draw.beta(0.3, 0.3, (k, d))
    x = torch.from_numpy((draw.random((n, d)) < codes @ patterns).astype(np.float32)).to(device)
    model = BernoulliNMF(k, tol=2e-2, random_state=0).fit(x).set_params(tol=tol)
    B = model.components_.clamp(1e-6, 1 - 1e-6)

    def by_em() -> torch.Tensor:
        Z = torch.full((n, k), 1 / k, device=device)
        for _ in range(2000):
            M = ((x / (Z @ B)) @ B.T + ((1 - x) / (Z @ (1 - B))) @ (1 - B).T) / d
            if float(M.max()) <= 1 + tol:
                break
            Z = Z * M
        return Z

    def agree(ours: torch.Tensor, theirs: torch.Tensor) -> None:
        values = [torch.where(x > 0, Z @ B, 1 - Z @ B).log().mean(1) for Z in (ours, theirs)]
        torch.testing.assert_close(*values, atol=1.5 * tol, rtol=0)

    yield Row(
        f"BernoulliNMF.transform, {n} x {d}, {k} patterns, to a gap of {tol:g}",
        lambda: model.transform(x),
        {"plain torch, EM": by_em},
        agree,
        rounds=3,
    )


def _loop(X: Any, Z: Any, B: Any) -> Any:
    """EM as it is written down."""
    for _ in range(30):
        P = Z @ B
        one, zero = X / P, (1 - X) / (1 - P)
        G1, G0 = B * (Z.T @ one), (1 - B) * (Z.T @ zero)
        Z = Z * (one @ B.T + zero @ (1 - B).T) / X.shape[1]
        B = G1 / (G1 + G0)
    return B
