"""ELMo: its equations written out, either direction, ragged sentences, strings nobody has seen."""

from typing import Any

import pytest
import torch
from torch import Tensor

from vademecum.language import ELMo
from vademecum.testing import check_part

SMALL: dict[str, Any] = {"V": 7, "d": 5, "hidden": 6, "d_characters": 3, "filters": {1: 2, 3: 4}}


def small(**options: Any) -> ELMo:
    """A narrow network whose numbers are all of order one."""
    net = ELMo(**{**SMALL, **options})
    for p in net.parameters():
        p.data.normal_(0, 0.5)
    with torch.no_grad():
        net.words.embedding.weight[0] = 0
    return net.double().eval()


def word_by_hand(net: ELMo, characters: list[int]) -> Tensor:
    vectors, found = net.words.embedding.weight[characters], []
    convolutions: Any = net.words.filters
    for layer in convolutions:
        width = layer.kernel_size[0]
        padded = torch.cat((vectors, vectors.new_zeros(max(0, width - len(vectors)), 3)))
        windows = [padded[t : t + width] for t in range(len(padded) - width + 1)]
        answers = [torch.einsum("mcw,wc->m", layer.weight, x) + layer.bias for x in windows]
        found.append(torch.stack(answers).amax(0).clamp(min=0))
    x = torch.cat(found)
    highways: Any = net.words.highways
    for layer in highways:
        y = x @ layer.weight.T + layer.bias
        gate = 1 / (1 + torch.exp(-y[len(x) :]))
        x = gate * y[: len(x)].clamp(min=0) + (1 - gate) * x
    return x @ net.words.projection.weight.T + net.words.projection.bias


def lstm_by_hand(layer: Any, x: Tensor) -> Tensor:
    h = x.new_zeros(layer.proj_size or layer.hidden_size)
    c, found = x.new_zeros(layer.hidden_size), []
    for now in x:
        gates = layer.weight_ih_l0 @ now + layer.bias_ih_l0 + layer.weight_hh_l0 @ h
        i, f, g, o = (gates + layer.bias_hh_l0).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        h = layer.weight_hr_l0 @ h if layer.proj_size else h
        found.append(h)
    return torch.stack(found)


SENTENCES = [["a", "bee", "sat"], ["naïve"], ["I", "am"]]


@pytest.mark.parametrize("options", [{}, {"hidden": 5}, {"layers": 3, "highways": 1}])
@torch.no_grad()
def test_elmo_is_its_equations(options):
    net, words = small(**options), ELMo.encode(SENTENCES)
    found = net(words.characters, lengths=words.lengths)
    predicted = net.predictions(words.characters, lengths=words.lengths)
    for i, sentence in enumerate(SENTENCES):
        T = len(sentence)
        spelled = [[257, *(b + 1 for b in word.encode()), 258] for word in sentence]
        left = right = torch.stack([word_by_hand(net, word) for word in spelled])
        layers = [torch.cat((left, right), 1)]
        for j in range(len(net.from_left)):
            new = lstm_by_hand(net.from_left[j], left)
            left = new + left if j else new
            new = lstm_by_hand(net.from_right[j], right.flip(0)).flip(0)
            right = new + right if j else new
            layers.append(torch.cat((left, right), 1))
        assert (found.layers[i, :, :T] - torch.stack(layers)).abs().max() < 1e-12
        shares = net.weights.exp() / net.weights.exp().sum()
        mixed = net.gamma * sum(s * h for s, h in zip(shares, layers, strict=True))
        assert (found.mixed[i, :T] - mixed).abs().max() < 1e-12
        assert net.head is not None
        for logits, state in zip(predicted, (left, right), strict=True):
            assert (logits[i, :T] - net.head(state)).abs().max() < 1e-12


@torch.no_grad()
def test_the_loss_counts_each_neighbour_once():
    net, words = small(), ELMo.encode(SENTENCES)
    targets = torch.tensor([[4, 0, 6], [3, 0, 0], [1, 2, 0]])
    after, before = net.predictions(words.characters, lengths=words.lengths)
    pairs = [(0, 0, 1), (0, 1, 2), (2, 0, 1)]  # row, word, next word
    wanted = sum(
        -after[i, s].log_softmax(0)[targets[i, t]] - before[i, t].log_softmax(0)[targets[i, s]]
        for i, s, t in pairs
    )
    found = net.loss(words.characters, targets, lengths=words.lengths)
    assert abs(float(found - wanted / 3)) < 1e-12


def test_a_frozen_network_learns_its_mix_alone():
    net, words = small().freeze(), ELMo.encode(SENTENCES)
    net(words.characters).mixed.square().sum().backward()
    learned = {name for name, p in net.named_parameters() if p.grad is not None}
    assert learned == {"weights", "gamma"}


def test_encode_spells_words_in_bytes():
    characters, lengths = ELMo.encode([["ab", ""], ["é"]])
    assert characters.tolist() == [[[257, 98, 99, 258], [257, 258, 0, 0]],
                                   [[257, 196, 170, 258], [0, 0, 0, 0]]]  # fmt: skip
    assert lengths.tolist() == [2, 1]


LAWS = {"plain": lambda: small(), "dropout": lambda: small(dropout=0.2, hidden=5)}


@pytest.mark.parametrize("name", LAWS)
def test_elmo_keeps_the_laws_of_parts(name):
    net = LAWS[name]().float()
    net.head = None  # which the vectors do not use
    characters = ELMo.encode([["to", "be", "or"], ["not", "to", "bee"]]).characters
    check_part(net, characters, devices=("cpu", "meta"))


WORDS = torch.ones(2, 3, 4, dtype=torch.long)
BAD = [
    (lambda: ELMo(d=6, hidden=5), "hidden must be >= 6, got 5"),
    (lambda: ELMo(filters={}), "filters must name a width or more"),
    (lambda: ELMo(filters={0: 3}), "widths of filters must be >= 1, got 0"),
    (lambda: ELMo(layers=0), "layers must be >= 1, got 0"),
    (lambda: ELMo.encode([["a"], []]), "none of them empty"),
    (lambda: ELMo.encode(["a bee"]), "sentences must be lists of words, got 'a bee'"),
    (lambda: small()(WORDS[0]), r"characters must be integers of shape \(n, T, W\)"),
    (lambda: small()(WORDS.double()), r"characters must be integers of shape \(n, T, W\)"),
    (lambda: small()(WORDS + 258), "characters must be between 0 and 258"),
    (lambda: small()(WORDS, lengths=torch.tensor([4, 1])), "lengths must be between 0 and 3"),
    (lambda: small(V=None).predictions(WORDS), "V must be given to the constructor"),
    (lambda: small().loss(WORDS, WORDS[0]), r"targets must have the shape \(2, 3\), T >= 2"),
    (lambda: small().loss(WORDS, WORDS[..., 0].double()), "targets must be integers of shape"),
    (lambda: small().loss(WORDS, WORDS[..., 0] + 99), "targets must be between 0 and .*, got 100"),
    (lambda: small().loss(WORDS, WORDS[..., 0], lengths=torch.tensor([1, 0])),
     r"lengths must be > 1 somewhere, got \[1, 0\]"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
