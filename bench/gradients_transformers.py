"""Rows of the room `gradients` for transformers: BERT with a class, GPT-2 with the next tokens.

Six layers, 256 wide, random weights, 8,192 words, sequences of 64; attention by plain products
(`eager`), which all sides can differentiate twice. BackPACK has no extension for such models.
"""

import importlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn.functional import cross_entropy

from bench.harness import Row
from vademecum.gradients.example_norms import gradient_norms
from vademecum.gradients.jacobian_operator import jacobian
from vademecum.gradients.network_function import functional
from vademecum.gradients.per_example import per_example_gradients
from vademecum.gradients.products import hessian

__all__ = ["rows"]

WORDS, LENGTH = 8192, 64
Peers = dict[str, Callable[[], Any]]


class Case(NamedTuple):
    """A model, its inputs and targets, and a loss that is a sum over the examples."""

    name: str
    model: nn.Module
    x: dict[str, Any]
    y: Tensor
    loss: Callable[[Any, Tensor], Tensor]


class Logits(nn.Module):
    """A model of transformers as peers like it: a tensor goes in, a tensor comes out."""

    def __init__(self, model: nn.Module, **more: Any):
        super().__init__()
        self.model, self.more = model, more

    def forward(self, ids: Tensor) -> Tensor:
        each = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        return self.model(input_ids=ids, position_ids=each, **self.more).logits


def rows(device: torch.device) -> Iterator[Row]:
    n = 32 if device.type == "cpu" else 256
    for make in (_bert, _gpt2):
        torch.manual_seed(0)
        case = make(n, device)
        yield from _per_example(case)
        yield _in_theta(case)
        yield _hessian(case)


def _bert(n: int, device: torch.device) -> Case:
    transformers: Any = importlib.import_module("transformers")
    config = transformers.BertConfig(
        vocab_size=WORDS, hidden_size=256, num_hidden_layers=6, num_attention_heads=4,
        intermediate_size=1024, max_position_embeddings=128, num_labels=4,
        hidden_dropout_prob=0, attention_probs_dropout_prob=0, attn_implementation="eager",
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config).eval().to(device)
    x = {"input_ids": torch.randint(WORDS, (n, LENGTH), device=device)}
    y = torch.randint(4, (n,), device=device)
    return Case("BERT", model, x, y, partial(cross_entropy, reduction="sum"))


def _gpt2(n: int, device: torch.device) -> Case:
    transformers: Any = importlib.import_module("transformers")
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=128, n_embd=256, n_layer=6, n_head=4, bos_token_id=0,
        eos_token_id=0, attn_implementation="eager",
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval().to(device)
    y = torch.randint(WORDS, (n, LENGTH), device=device)
    return Case("GPT-2", model, {"input_ids": y, "use_cache": False}, y, _next_tokens)


def _next_tokens(z: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(z[:, :-1].flatten(0, 1), y[:, 1:].flatten(), reduction="sum")


def _wrapped(case: Case) -> Logits:
    return Logits(case.model, **{k: v for k, v in case.x.items() if k != "input_ids"})


def _close(limit: float, mine: Tensor, other: Tensor) -> None:
    gap = float((mine - other).norm() / other.norm())
    assert gap < limit, f"results differ by {gap:.2g}"


def _per_example(case: Case) -> Iterator[Row]:
    name, model, x, y, loss = case
    f, net, ids = functional(model), _wrapped(case), x["input_ids"]
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def of_one(parameters: dict[str, Tensor], ids: Tensor, y: Tensor) -> Tensor:
        return loss(functional_call(net, parameters, (ids[None],)), y[None])

    def mapped() -> list[Tensor]:
        return list(vmap(grad(of_one), (None, 0, 0))(parameters, ids, y).values())

    def agree(ours: Tensor, peer: list[Tensor]) -> None:
        whole = ours.norm()
        for mine, other in zip(f.unravel(ours).values(), peer, strict=True):
            assert float((mine - other).norm() / whole) < 1e-3, "results differ"

    peers: Peers = {"torch.func vmap(grad)": mapped}
    if name == "BERT":  # Opacus leaves shared weights out
        peers |= _opacus(case)
    yield Row(f"per_example_gradients, {name}, {len(y)} sequences",
              partial(per_example_gradients, model, x, y, loss=loss), peers, agree,
              f"{len(y) * f.size * 4 / 1e6:.0f} MB written", rounds=5)  # fmt: skip

    def norms(call: Callable[[], list[Tensor]]) -> Tensor:
        return torch.stack([g.flatten(1).square().sum(1) for g in call()]).sum(0).sqrt()

    yield Row(f"gradient_norms, {name}, {len(y)} sequences",
              partial(gradient_norms, model, x, y, loss=loss),
              {name: partial(norms, call) for name, call in peers.items()},
              partial(_close, 1e-3), rounds=5)  # fmt: skip


def _opacus(case: Case) -> Peers:
    wrapper = importlib.import_module("opacus.grad_sample").GradSampleModule
    wrapped = wrapper(deepcopy(_wrapped(case)).train(), loss_reduction="sum")  # nothing drops out

    def call() -> list[Tensor]:
        case.loss(wrapped(case.x["input_ids"]), case.y).backward()
        found = [p.grad_sample for p in wrapped.parameters()]
        for p in wrapped.parameters():
            p.grad_sample = p.grad = None
        return found

    return {"Opacus": call}


def _in_theta(case: Case) -> Row:
    """The first four scores: of the classes, or of the word that comes last."""
    f, net = functional(case.model), _wrapped(case)
    few = {k: v[:4] if isinstance(v, Tensor) else v for k, v in case.x.items()}
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def scores(z: Tensor) -> Tensor:
        return z[:, -1, :4] if z.ndim == 3 else z

    def forward(parameters: dict[str, Tensor], ids: Tensor) -> Tensor:
        return scores(functional_call(net, parameters, (ids[None],)))[0]

    def ours() -> Tensor:
        return jacobian(case.model, few, output=lambda result: scores(result.logits)).blocks()

    def agree(ours: Tensor, peer: dict[str, Tensor]) -> None:
        for mine, other in zip(f.unravel(ours).values(), peer.values(), strict=True):
            assert float((mine - other).norm() / ours.norm()) < 1e-3, "results differ"

    peers: Peers = {
        "torch.func vmap(jacrev)": partial(
            vmap(jacrev(forward), (None, 0)), parameters, few["input_ids"]
        )
    }
    return Row(f"jacobian in theta, 4 outputs, {case.name}, 4 sequences", ours, peers, agree,
               f"{16 * f.size * 4 / 1e6:.0f} MB written", rounds=5)  # fmt: skip


def _hessian(case: Case) -> Row:
    net, ids, y, loss = _wrapped(case), case.x["input_ids"], case.y, case.loss
    few = {k: v[:8] if isinstance(v, Tensor) else v for k, v in case.x.items()}
    ids, y = ids[:8], y[:8]
    parameters = list(net.parameters())
    f = functional(case.model)
    v = torch.randn(f.size, device=ids.device) / f.size**0.5
    parts = list(f.unravel(v).values())

    def joined(found: Any) -> Tensor:
        return torch.cat([g.flatten() for g in found])

    def again() -> Tensor:
        g = torch.autograd.grad(loss(net(ids), y), parameters, create_graph=True)
        return joined(torch.autograd.grad(g, parameters, parts))

    kept = torch.autograd.grad(loss(net(ids), y), parameters, create_graph=True)
    H = hessian(case.model, few, y, loss=loss)
    peers: Peers = {
        "torch, graph kept": lambda: joined(
            torch.autograd.grad(kept, parameters, parts, retain_graph=True)
        ),
        "torch, double backward": again,
    }
    if case.name == "BERT":  # whose loss curvlinops knows
        peers |= _curvlinops(net, ids, y, v)
    return Row(f"hessian product, {case.name}, 8 sequences", lambda: H @ v, peers,
               partial(_close, 1e-2), rounds=5)  # fmt: skip


def _curvlinops(net: nn.Module, ids: Tensor, y: Tensor, v: Tensor) -> Peers:
    kind = importlib.import_module("curvlinops").HessianLinearOperator
    parameters = dict(net.named_parameters())
    operator = kind(
        net, nn.CrossEntropyLoss(reduction="sum"), list(parameters.values()), [(ids, y)]
    )
    return {"curvlinops": lambda: operator @ v}
