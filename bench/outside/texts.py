"""The instruments of `language` on models of the next token, against the oracle.

Perplexity is the exponential of the loss that the model is trained by. Probes are ridge regressions
on what the layers of the twin gave, by the normal equations.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from bench.outside.cases import Subject
from bench.outside.derivatives import Check, _draw, _same
from bench.outside.oracles import Oracle
from vademecum.language import linear_probe, perplexity

__all__ = ["TEXTS"]

DECAY = 0.1


def _perplexity(s: Subject, o: Oracle) -> Iterator[str]:
    n, T = s.y.shape
    found = perplexity(s.model, s.y, context=T)
    if found.tokens != n * (T - 1):
        yield f"{found.tokens} tokens are predicted, not {n * (T - 1)}"
    loss = o.loss().detach().double()
    yield _same(o)("nats", torch.tensor(found.nats), loss)
    yield _same(o)("perplexity", torch.tensor(math.log(found.perplexity)), loss)


def _probe(s: Subject, o: Oracle) -> Iterator[str]:
    y, test = _draw(*s.y.shape, like=o.gradient), torch.arange(len(s.y)) < 1
    found = linear_probe(s.model, s.x, y, held_out=test, weight_decay=DECAY)
    outputs: dict[str, Tensor] = {}
    for name in found.names:

        def note(module: object, args: object, h: object, name: str = name) -> None:
            outputs[name] = (h[0] if isinstance(h, tuple) else h).detach()  # pyright: ignore

        with o.model.get_submodule(name).register_forward_hook(note):
            o.result()
    scores = [_score(outputs[name], y, test) for name in found.names]
    yield _same(o)("scores", found.scores, torch.stack(scores))


def _score(h: Tensor, y: Tensor, test: Tensor) -> Tensor:
    h, y = h.double(), y.double()
    x, fresh, own, wanted = h[~test].flatten(0, 1), h[test][0], y[~test].flatten(), y[test][0]
    center, scale = x.mean(0), x.std(0, correction=0)
    x, fresh = (x - center) / scale, (fresh - center) / scale
    gram = x.T @ x + DECAY * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    guessed = fresh @ torch.linalg.solve(gram, x.T @ (own - own.mean())) + own.mean()
    return 1 - (guessed - wanted).square().sum() / (wanted - wanted.mean()).square().sum()


TEXTS: dict[str, Check] = {"perplexity": _perplexity, "linear_probe": _probe}
"""What asks each instrument, by its name."""
