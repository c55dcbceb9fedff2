"""BERT: counts, the equations written out, packing, heads, bad input."""

import math
from typing import Any

import pytest
import torch

from vademecum.language import BERT, BERTOutput, BERTPretraining
from vademecum.language.networks._packing import Packing
from vademecum.testing import check_part

COUNTS = {
    ("bert-base", False): 109_482_240, ("bert-base", True): 110_106_428,
    ("bert-large", False): 335_141_888, ("bert-large", True): 336_226_108,
}  # fmt: skip
SMALL: dict[str, Any] = {"V": 11, "d": 12, "layers": 2, "heads": 3, "context": 9, "hidden": 20}


def small(**options: Any) -> BERT:
    """A narrow model whose numbers are all of order one, norms and biases included."""
    net = BERT(**{**SMALL, **options})
    for p in net.parameters():
        p.data.normal_(0, 0.4)
    return net.double().eval()


@pytest.mark.parametrize(("name", "pretraining"), COUNTS)
def test_bert_has_the_published_number_of_parameters(name, pretraining):
    with torch.device("meta"):
        model = BERT.named(name, pretraining=pretraining)
    count = sum(p.numel() for p in model.parameters())
    print(f"{name}{' with heads' * pretraining}: {count:,}")
    assert count == COUNTS[name, pretraining]


class Hand:
    """BERT by its equations: one row, one head and one position after the other."""

    def __init__(self, net: BERT, heads: int, eps: float = 1e-12):
        self.w = {name.removeprefix("bert."): p for name, p in net.state_dict().items()}
        self.heads, self.eps = heads, eps
        self.layers = len(net.bert.encoder.layer if net.pretraining else net.encoder.layer)

    def norm(self, z, name):
        centred = z - z.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + self.eps).sqrt()
        return centred / scale * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def linear(self, z, name):
        return z @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def bent(self, z, name):
        u = self.linear(z, name)
        return u * (1 + torch.erf(u / math.sqrt(2))) / 2

    def hidden(self, row, segments):
        tables = [f"embeddings.{name}_embeddings.weight" for name in ("word", "token_type")]
        z = self.w[tables[0]][row] + self.w[tables[1]][segments]
        z = z + self.w["embeddings.position_embeddings.weight"][: len(row)]
        z, d = self.norm(z, "embeddings.LayerNorm"), z.shape[1]
        for i in range(self.layers):
            at = f"encoder.layer.{i}"
            q, k, v = (
                self.linear(z, f"{at}.attention.self.{x}") for x in ("query", "key", "value")
            )
            read = torch.empty_like(z)
            for h in range(self.heads):
                part = slice(h * d // self.heads, (h + 1) * d // self.heads)
                scores = q[:, part] @ k[:, part].T / math.sqrt(d // self.heads)
                read[:, part] = scores.softmax(-1) @ v[:, part]
            added = self.linear(read, f"{at}.attention.output.dense")
            z = self.norm(z + added, f"{at}.attention.output.LayerNorm")
            inner = self.bent(z, f"{at}.intermediate.dense")
            z = self.norm(z + self.linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        return z

    def pooled(self, z):
        return torch.tanh(self.linear(z[0], "pooler.dense"))

    def logits(self, z):
        inner = self.bent(z, "cls.predictions.transform.dense")
        inner = self.norm(inner, "cls.predictions.transform.LayerNorm")
        return (
            inner @ self.w["embeddings.word_embeddings.weight"].T + self.w["cls.predictions.bias"]
        )


LENGTHS = {"none": None, "ragged": [4, 7, 1, 4], "even": [7, 7, 7, 7]}


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("options", [{}, {"heads": 2, "layers": 1, "layer_norm_eps": 0.1}])
@torch.no_grad()
def test_bert_is_its_equations(lengths, options):
    net = small(pretraining=True, **options)
    hand = Hand(net, options.get("heads", 3), options.get("layer_norm_eps", 1e-12))
    tokens, segments = torch.randint(11, (4, 7)), torch.randint(2, (4, 7))
    rows = LENGTHS[lengths]
    found = net(tokens, segments, lengths=None if rows is None else torch.tensor(rows))
    assert isinstance(found, BERTPretraining)
    for i, length in enumerate(rows or [7] * 4):
        z = hand.hidden(tokens[i, :length], segments[i, :length])
        assert (found.hidden[i, :length] - z).abs().max() < 1e-11
        assert (found.pooled[i] - hand.pooled(z)).abs().max() < 1e-11
        assert (found.logits[i, :length] - hand.logits(z)).abs().max() < 1e-11
        follows = hand.linear(hand.pooled(z), "cls.seq_relationship")
        assert (found.next_logits[i] - follows).abs().max() < 1e-11
        assert not found.hidden[i, length:].any()
        assert not found.logits[i, length:].any()


@torch.no_grad()
def test_segments_are_the_first_by_default():
    net, tokens = small(), torch.randint(11, (2, 5))
    first, second = (net(tokens, torch.full((2, 5), i)) for i in (0, 1))
    assert torch.equal(net(tokens).hidden, first.hidden)
    assert not torch.allclose(net(tokens).hidden, second.hidden)


@torch.no_grad()
def test_logits_where_they_are_wanted():
    net, tokens = small(pretraining=True), torch.randint(11, (3, 6))
    lengths, where = torch.tensor([6, 2, 4]), torch.zeros(3, 6, dtype=torch.bool)
    where[0, 5] = where[0, 0] = where[2, 3] = True
    every, some = net(tokens, lengths=lengths), net(tokens, lengths=lengths, where=where)
    assert (some.logits - every.logits[where]).abs().max() < 1e-12


LAWS = {
    "plain": lambda: small(),
    "dropout": lambda: small(dropout=0.2, attention_dropout=0.1),
    "heads": lambda: small(pretraining=True, checkpointing=True),
}


@pytest.mark.parametrize("name", LAWS)
def test_bert_keeps_the_laws_of_parts(name):
    check_part(LAWS[name]().float(), torch.randint(11, (3, 5)), devices=("cpu", "meta"))


def test_packed_rows_and_checkpoints_have_the_same_gradients():
    net, tokens = small(pretraining=True), torch.randint(11, (3, 6))
    lengths = torch.tensor([6, 2, 4])
    grads = []
    for net.checkpointing, packed in ((False, True), (True, True), (False, False)):
        net.zero_grad()
        if packed:
            found = net(tokens, lengths=lengths)
            (found.logits.square().sum() + found.next_logits.square().sum()).backward()
        else:
            for row, length in zip(tokens, lengths.tolist(), strict=True):
                found = net(row[None, :length])
                (found.logits.square().sum() + found.next_logits.square().sum()).backward()
        grads.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
    assert len(grads[0]) == len(list(net.parameters()))
    for same, alone, mine in zip(grads[1], grads[2], grads[0], strict=True):
        assert torch.allclose(mine, same, rtol=1e-12, atol=1e-12)
        assert torch.allclose(mine, alone, rtol=1e-9, atol=1e-9)


def test_padding_is_not_computed():
    """Maps of single tokens see real ones alone."""
    net, seen = small(), []
    net.encoder.layer[0].register_forward_pre_hook(lambda _, given: seen.append(given[0].shape))
    net(torch.randint(11, (3, 6)), lengths=torch.tensor([6, 2, 4]))
    assert seen == [(12, 12)]


@torch.no_grad()
def test_padded_attention_is_that_of_each_row():
    """What CUDA devices do in single precision."""
    packing = Packing(4, 7, torch.tensor([4, 7, 1, 4]), torch.device("cpu"))
    q, k, v = torch.randn(3, 16, 3, 5).double()
    wanted = packing.attend(q, k, v, 0.0)
    assert (packing._padded(q, k, v, 0.0) - wanted).abs().max() < 1e-13


TOKENS = torch.zeros(2, 6, dtype=torch.long)
BAD = [
    (lambda: BERT(d=10, heads=3), "heads must divide the width d = 10, got 3"),
    (lambda: BERT(segments=0), "segments must be >= 1, got 0"),
    (lambda: BERT(dropout=-0.5), "dropout must be >= 0, got -0.5"),
    (lambda: BERT.named("bert"), "name must be one of 'bert-base', 'bert-large', got 'bert'"),
    (lambda: small()(TOKENS.double()), r"tokens must be integers of shape \(n, T\)"),
    (lambda: small()(TOKENS + 11), "tokens must be between 0 and 10, got 11"),
    (lambda: small()(TOKENS.repeat(1, 2)), "tokens must be at most context = 9 long, got 12"),
    (lambda: small()(TOKENS, TOKENS + 2), "segments must be between 0 and 1, got 2"),
    (lambda: small()(TOKENS, TOKENS[:1]), r"segments must have the shape of tokens, \(2, 6\)"),
    (lambda: small()(TOKENS, lengths=torch.tensor([0, 2])), r"lengths must be >= 1, got \[0, 2\]"),
    (lambda: small()(TOKENS, lengths=torch.tensor([7, 2])), "lengths must be between 0 and 6"),
    (lambda: small()(TOKENS, lengths=[3, 2]), r"lengths must be 2 integers, one for each row"),
    (lambda: small()(TOKENS, where=TOKENS > 0), "where must be None without pretraining=True"),
    (lambda: small(pretraining=True)(TOKENS, where=TOKENS), "where must be boolean, of the shape"),
    (lambda: small(pretraining=True)(TOKENS, where=[0]), "where must be boolean, of the shape"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_results_print_on_one_line():
    found = small()(TOKENS)
    assert isinstance(found, BERTOutput)
    assert repr(found) == "BERTOutput(hidden=float64[2, 6, 12], pooled=float64[2, 12])"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_packed_rows_on_a_gpu_are_those_of_the_cpu(dtype):
    net, tokens = small(d=24).float(), torch.randint(11, (5, 9))
    lengths = torch.tensor([4, 9, 1, 4, 7])
    wanted = net(tokens, lengths=lengths).hidden
    found = net.cuda().to(dtype)(tokens.cuda(), lengths=lengths.cuda()).hidden
    gap = 1e-5 if dtype == torch.float32 else 0.2
    assert (found.float().cpu() - wanted).abs().max() < gap
