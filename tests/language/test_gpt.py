"""GPT: counts, the equations written out, caches, ragged rows, checkpointing, bad input."""

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from vademecum.language import GPT
from vademecum.testing import check_part

COUNTS = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
}
SMALL: dict[str, Any] = {"V": 11, "d": 12, "layers": 2, "heads": 3, "context": 10, "hidden": 20}


def small(**options: Any) -> GPT:
    """A narrow model whose numbers are all of order one, norms and biases included."""
    net = GPT(**{**SMALL, **options})
    for p in net.parameters():
        p.data.normal_(0, 0.4)
    return net.double().eval()


@pytest.mark.parametrize("name", COUNTS)
def test_gpt_has_the_published_number_of_parameters(name):
    with torch.device("meta"):
        count = sum(p.numel() for p in GPT.named(name).parameters())
    print(f"{name}: {count:,}")
    assert count == COUNTS[name]


def by_hand(net: GPT, row: torch.Tensor, heads: int, eps: float = 1e-5) -> torch.Tensor:
    """The logits of one row by the equations, one head and one position after the other."""
    w = {name.removeprefix("transformer."): p for name, p in net.state_dict().items()}
    d = w["wte.weight"].shape[1]

    def norm(z, name):
        centred = z - z.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + eps).sqrt()
        return centred / scale * w[f"{name}.weight"] + w[f"{name}.bias"]

    def affine(z, name):
        return z @ w[f"{name}.weight"] + w[f"{name}.bias"]

    z = w["wte.weight"][row] + w["wpe.weight"][: len(row)]
    for i in range(len(net.transformer.h)):
        q, k, v = affine(norm(z, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").split(d, -1)
        read = torch.empty_like(z)
        for t in range(len(row)):
            for h in range(heads):
                part = slice(h * d // heads, (h + 1) * d // heads)
                scores = k[: t + 1, part] @ q[t, part] / math.sqrt(d // heads)
                read[t, part] = scores.softmax(-1) @ v[: t + 1, part]
        z = z + affine(read, f"h.{i}.attn.c_proj")
        u = affine(norm(z, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        bent = u / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
        z = z + affine(bent, f"h.{i}.mlp.c_proj")
    return norm(z, "ln_f") @ w["wte.weight"].T


@pytest.mark.parametrize("options", [{}, {"heads": 2, "layers": 3}, {"layer_norm_eps": 0.1}])
@torch.no_grad()
def test_gpt_is_its_equations(options):
    net, tokens = small(**options), torch.randint(11, (3, 7))
    eps = options.get("layer_norm_eps", 1e-5)
    wanted = torch.stack([by_hand(net, row, options.get("heads", 3), eps) for row in tokens])
    assert (net(tokens) - wanted).abs().max() < 1e-11


LAWS = {
    "plain": lambda: small(),
    "dropout": lambda: small(dropout=0.2, attention_dropout=0.1),
    "checkpointing": lambda: small(checkpointing=True),
}


@pytest.mark.parametrize("name", LAWS)
def test_gpt_keeps_the_laws_of_parts(name):
    check_part(LAWS[name]().float(), torch.randint(11, (3, 5)), devices=("cpu", "meta"))


@pytest.mark.parametrize("all_slots", [False, True])
@torch.no_grad()
def test_pieces_over_a_cache_are_the_whole(all_slots):
    net, tokens = small(), torch.randint(11, (3, 10))
    whole = net(tokens)
    for cuts in ([1] * 10, [4, 1, 3, 2], [10]):
        cache = net.make_cache(3, 10, all_slots=all_slots)
        pieces = [net(piece, cache=cache) for piece in tokens.split(cuts, 1)]
        assert (torch.cat(pieces, 1) - whole).abs().max() < 1e-12
        for layer in cache:
            layer.clear()
        assert (net(tokens, cache=cache, last=True) - whole[:, -1:]).abs().max() < 1e-12


@pytest.mark.parametrize("all_slots", [False, True])
@torch.no_grad()
def test_ragged_rows_continue_as_they_would_alone(all_slots):
    net, tokens = small(), torch.randint(11, (3, 10))
    first, second = torch.tensor([5, 1, 3]), torch.tensor([2, 3, 1], dtype=torch.int32)
    cache = net.make_cache(3, 10, all_slots=all_slots)
    starts = net(tokens[:, :5], lengths=first, cache=cache, last=True)
    more = net(tokens[:, 5:8], lengths=second, cache=cache)
    step = net(tokens[:, 8:9], cache=cache)
    for row, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        own = torch.cat((tokens[row, :a], tokens[row, 5 : 5 + b], tokens[row, 8:9]))
        alone = net(own[None])[0]
        assert (starts[row, 0] - alone[a - 1]).abs().max() < 1e-12
        assert (more[row, :b] - alone[a : a + b]).abs().max() < 1e-12
        assert (step[row, 0] - alone[a + b]).abs().max() < 1e-12
    assert cache[1].lengths.tolist() == [8, 5, 5]


@torch.no_grad()
def test_lengths_of_any_integers_say_where_rows_end():
    net, tokens = small(), torch.randint(11, (3, 5))
    lengths = torch.tensor([5, 0, 2], dtype=torch.uint8)
    found, every = net(tokens, lengths=lengths, last=True), net(tokens)
    assert torch.equal(found[:, 0], every[torch.arange(3), torch.tensor([4, 0, 1])])


@torch.no_grad()
def test_padding_that_ends_beyond_the_context_is_harmless():
    net, tokens = small(), torch.randint(11, (2, 8))
    cache = net.make_cache(2, 10)
    net(tokens, lengths=torch.tensor([8, 7]), cache=cache)
    found = net(tokens[:, :3], lengths=torch.tensor([2, 0]), cache=cache)
    alone = net(torch.cat((tokens[:1], tokens[:1, :2]), 1))
    assert (found[0, :2] - alone[0, -2:]).abs().max() < 1e-12


def test_a_checkpointed_pass_has_the_same_gradients():
    net, tokens = small(), torch.randint(11, (2, 6))
    grads = []
    for net.checkpointing in (False, True):
        net.zero_grad()
        F.cross_entropy(net(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
        grads.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_dropout_is_off_in_evaluation_and_on_in_training():
    net, tokens = small(attention_dropout=0.5), torch.randint(11, (2, 6))
    assert torch.equal(net(tokens), net(tokens))
    assert not torch.equal(net.train()(tokens), net(tokens))
    net = small(dropout=0.5, attention_dropout=0.0).train()
    assert not torch.equal(net(tokens), net(tokens))


def test_the_first_weights_have_the_published_law():
    net = GPT(V=300, d=64, layers=8, heads=4, context=50)
    for name, p in net.named_parameters():
        if name.endswith(("wte.weight", "c_attn.weight", "c_fc.weight", "wpe.weight")):
            wanted = 0.02
        elif name.endswith("c_proj.weight"):
            wanted = 0.005  # 0.02 / sqrt(2 * 8)
        else:
            assert torch.equal(p, torch.full_like(p, float("ln" in name and "weight" in name)))
            continue
        assert abs(p.std().item() / wanted - 1) < 5 / math.sqrt(2 * p.numel())


def on_cache(net: GPT, tokens: torch.Tensor, **options: Any) -> None:
    with torch.no_grad():
        cache = net.make_cache(len(tokens), 10)
        net(tokens, cache=cache, **options)
        net(tokens, cache=cache, **options)


TOKENS = torch.zeros(2, 6, dtype=torch.long)
BAD = [
    (lambda: GPT(d=10, heads=3), "heads must divide the width d = 10, got 3"),
    (lambda: GPT(V=0), "V must be >= 1, got 0"),
    (lambda: GPT(layers=0), "layers must be >= 1, got 0"),
    (lambda: GPT(dropout=1.0), "dropout must be < 1, got 1.0"),
    (lambda: GPT(attention_dropout=-0.1), "attention_dropout must be >= 0, got -0.1"),
    (lambda: GPT.named("gpt3"), "name must be one of 'gpt2', 'gpt2-medium'"),
    (
        lambda: small()(TOKENS.float()),
        r"tokens must be integers of shape \(n, T\), got torch.float",
    ),
    (lambda: small()(TOKENS[0]), r"tokens must be integers of shape \(n, T\), got"),
    (lambda: small()(TOKENS + 11), "tokens must be between 0 and 10, got 11"),
    (lambda: small()(TOKENS - 1), "tokens must be between 0 and 10, got -1"),
    (lambda: small()(TOKENS.repeat(1, 2)), "tokens must be at most context = 10 long, got 12"),
    (lambda: small()(TOKENS, lengths=torch.tensor([7, 2])), "lengths must be between 0 and 6"),
    (lambda: small()(TOKENS, lengths=torch.tensor([7.0, 2])), "lengths must be 2 integers"),
    (lambda: small()(TOKENS, cache=small().make_cache(2, 8)), "keys must not want gradients"),
    (lambda: small()(TOKENS, cache=small().make_cache(3, 8)), "at most 10 tokens in 2 rows"),
    (lambda: small()(TOKENS, cache=small().make_cache(2, 8)[:1]), "cache must hold 2 caches"),
    (lambda: small().make_cache(2, 11), "length must be <= 10, got 11"),
    (lambda: on_cache(small(), TOKENS), "the cache is full: 12 tokens exceed capacity=10"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
