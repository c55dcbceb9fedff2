"""Rows of the room `connectionism`: perceptrons, and associative memories."""

import math
import warnings
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from bench.harness import Row, Skipped, in_turn
from vademecum.connectionism import (
    DenseHopfield,
    HopfieldNetwork,
    MaxMarginClassifier,
    Perceptron,
    WillshawMemory,
    sparse_patterns,
)
from vademecum.data import load

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    torch.manual_seed(0)
    if device.type == "cpu":  # scikit-learn and NumPy have no other
        yield from in_turn(_perceptron(), _two_classes())
    yield from in_turn(_willshaw(device), _hopfield(device), _dense_hopfield(device))


def _perceptron() -> Iterator[Row]:
    from sklearn.linear_model import Perceptron as Peer

    images = load("fashion_mnist")
    x, y = images.x.flatten(1).numpy(), images.y.numpy()
    warnings.simplefilter("ignore")  # one epoch does not converge, and both say so

    def fit(kind, seeds=(0,), **options):
        return lambda: [kind(random_state=seed, **options).fit(x, y) for seed in seeds]

    def same_skill(ours, peer):
        # The orders are random, so the weights differ; that the rule is the same is checked below.
        for a, b in zip(ours, peer, strict=True):
            assert abs(a.score(x, y) - b.score(x, y)) < 0.1, "accuracies differ"

    _insist_on_equal_weights(Peer, y)
    for name, options in (
        ("one epoch", {"max_iter": 1, "tol": None}),
        ("one epoch, in the given order", {"max_iter": 1, "tol": None, "shuffle": False}),
        ("to its stopping rule, 4 seeds", {"seeds": (0, 1, 2, 3)}),  # epochs vary with the seed
    ):
        peers = {"scikit-learn, 2 jobs": fit(Peer, n_jobs=2, **options)}
        if "seeds" not in options:  # where it takes minutes more
            peers["scikit-learn, 1 job"] = fit(Peer, **options)
        limit = "188 MB of data: 7 ms an epoch at 27 GB/s"
        yield Row(f"Perceptron, {name}, Fashion-MNIST", fit(Perceptron, **options), peers,
                  same_skill, limit, rounds=3 if "seeds" in options else 7)  # fmt: skip


def _two_classes() -> Iterator[Row]:
    from sklearn.linear_model import Perceptron as Peer
    from sklearn.svm import SVC

    images = load("fashion_mnist")
    x, y = images.x.flatten(1).numpy(), images.y.numpy()
    top = y == 0
    _insist_on_equal_weights(Peer, top)

    def fit(kind, **options):
        return lambda: kind(random_state=0, **options).fit(x, top)

    def same_skill(ours, peer):
        assert abs(ours.score(x, top) - peer.score(x, top)) < 0.1, "accuracies differ"

    for name, options in (
        ("one epoch", {"max_iter": 1, "tol": None}),
        ("to its stopping rule, in the given order", {"shuffle": False}),
    ):
        peers = {"scikit-learn": fit(Peer, **options)}
        limit = "188 MB of data: 7 ms an epoch at 27 GB/s"
        yield Row(f"Perceptron, two classes, {name}, Fashion-MNIST", fit(Perceptron, **options),
                  peers, same_skill, limit)  # fmt: skip

    some = (y == 1) | (y == 8)

    def same_margin(ours, peer):  # to the peer's tolerance
        assert abs(ours.margin_ * np.linalg.norm(peer.coef_) - 1) < 1e-3, "margins differ"

    machine = partial(SVC(kernel="linear", C=1e6).fit, x[some], y[some])
    yield Row("MaxMarginClassifier, 12000 images, to a gap of 1e-10",
              partial(MaxMarginClassifier().fit, x[some], y[some]), {"scikit-learn SVC": machine},
              same_margin)  # fmt: skip


def _insist_on_equal_weights(peer, y: np.ndarray) -> None:
    """On whole numbers in double precision both must find the same weights, bit by bit."""
    x = load("fashion_mnist", dtype=torch.uint8).x.flatten(1).double().numpy()[:10_000]
    options = {"max_iter": 2, "tol": None, "shuffle": False}
    ours, theirs = Perceptron(**options).fit(x, y[:10_000]), peer(**options).fit(x, y[:10_000])
    assert np.array_equal(ours.coef_, theirs.coef_), "the weights differ"


def _willshaw(device: torch.device) -> Iterator[Row]:
    n, r, cues = 4096, 12, 10_000 if device.type == "cpu" else 80_000
    s = round(math.log(2) * n * n / r**2)  # half of the links
    x, y = (sparse_patterns(s, n, r, device=device) for _ in range(2))
    memory = WillshawMemory(n).to(device)
    memory.store(x, y)
    theta = memory.recall(torch.eye(n, device=device)).T  # (out, in)
    asked = x[:cues]

    def agree(ours, peer):
        assert np.array_equal(ours.cpu().numpy(), np.asarray(peer.cpu() if isinstance(peer, Tensor)
                                                            else peer))  # fmt: skip

    megabytes = memory.links.nbytes / 1e6
    limit = f"links {megabytes:.0f} MB for {n * n * 4 / 1e6:.0f} MB as float32; 61 MB read: 2.3 ms"
    name = f"WillshawMemory.recall, {cues} cues, n = {n}"
    if device.type == "cuda":
        half, cue = theta.half().T.contiguous(), asked.half()
        product = {"torch float16 product": lambda: cue @ half >= r}
        yield Row(name, lambda: memory.recall(asked), product, agree, "")
        return
    dense, cue = theta.float().numpy().T.copy(), asked.float().numpy()
    links, active = theta.numpy().T.copy(), asked.numpy()
    peers = {
        "NumPy float32 product": lambda: cue @ dense >= r,
        "NumPy boolean rows": lambda: _boolean_rows(links, active),
    }
    yield Row(name, lambda: memory.recall(asked), peers, agree, limit, rounds=3)


def _boolean_rows(links: np.ndarray, cues: np.ndarray) -> np.ndarray:
    """The AND of the rows of each cue's active units, one byte per link."""
    answers = np.empty((len(cues), links.shape[1]), bool)
    for answer, cue in zip(answers, cues, strict=True):
        np.logical_and.reduce(links[np.flatnonzero(cue)], out=answer)
    return answers


def _hopfield(device: torch.device) -> Iterator[Row]:
    n, s, batch = 2048, 100, 256
    patterns = torch.randint(2, (s, n), device=device).float() * 2 - 1
    chosen = patterns[torch.randint(s, (batch,), device=device)]
    start = torch.where(torch.rand(batch, n, device=device) < 0.1, -chosen, chosen)
    net = HopfieldNetwork(patterns)
    weights = net.weights.cpu().numpy()

    def agree(ours, peer):
        assert np.array_equal(ours.cpu().numpy(), peer)

    def loop() -> np.ndarray:
        x = start.cpu().numpy().T.copy()  # a unit's states side by side
        while True:
            before = x.copy()
            for i in range(n):
                h = weights[i] @ x
                x[i] = np.where(h == 0, x[i], np.sign(h))
            if np.array_equal(before, x):
                return x.T

    limit = "2 sweeps of 105 MFLOP: 1.3 ms at 165 GFLOP/s" if device.type == "cpu" else ""
    name = f"HopfieldNetwork, asynchronous, {batch} states, n = {n}"
    yield Row(name, lambda: net.retrieve(start, order="fixed").states, {"NumPy loop": loop}, agree,
              limit)  # fmt: skip


def _dense_hopfield(device: torch.device) -> Iterator[Row]:
    queries, patterns, d = 4096, 8192, 64
    for dtype in (torch.float32,) if device.type == "cpu" else (torch.float32, torch.bfloat16):
        options = {"device": device, "dtype": dtype}
        p, x = torch.randn(patterns, d, **options), torch.randn(queries, d, **options)
        memory = DenseHopfield(p, beta=d**-0.5)
        rounding = max(10 * torch.finfo(dtype).eps, 1e-4)

        def agree(ours, peer, tol=rounding):
            torch.testing.assert_close(ours, peer, rtol=tol, atol=tol)

        def attention(x: Tensor = x, p: Tensor = p) -> Tensor:
            return torch.softmax(x @ p.T * d**-0.5, -1) @ p

        limit = "8.6 GFLOP: 52 ms at 165 GFLOP/s" if device.type == "cpu" else ""
        kind = str(dtype).removeprefix("torch.")
        name = f"DenseHopfield step, {queries} queries, {patterns} patterns, {kind}"
        peers = {"torch attention written out": attention}
        yield Row(name, partial(memory.step, x), peers, agree, limit)
