"""What recipes pay and how they are judged, against sums over single examples written out."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.language import BERT, mask_tokens
from vademecum.train.recipes import _generative_parts, _graph_parts, _image_losses, _text_losses


def log_softmax(row: torch.Tensor) -> list[float]:
    total = sum(math.exp(x) for x in row.tolist())
    return [x - math.log(total) for x in row.tolist()]


def test_the_next_byte_is_the_one_that_follows():
    table = torch.randn(5, 5, dtype=torch.float64)
    windows = torch.tensor([[0, 3, 1, 4], [2, 2, 0, 1]])
    found = _text_losses.next_loss(nn.Embedding.from_pretrained(table), windows)
    paid = [-log_softmax(table[row[i]])[row[i + 1]] for row in windows.tolist() for i in range(3)]
    assert found.item() == pytest.approx(sum(paid) / 6)


def test_every_noise_word_counts_in_full():
    class Fixed(_text_losses.Words):
        def draw(self, n: int, k: int) -> torch.Tensor:
            return far

    model = Fixed(torch.tensor([3, 2, 1]), 4).double()
    nn.init.normal_(model.contexts.weight)
    pairs, far = torch.tensor([[0, 1], [2, 0]]), torch.tensor([[1, 2, 2], [0, 1, 2]])
    u, v = model.vectors.weight.detach(), model.contexts.weight.detach()

    def chance(word: int, near: int, sign: int) -> float:
        return math.log(1 / (1 + math.exp(-sign * float(u[word] @ v[near]))))

    paid = [
        chance(word, near, 1) + sum(chance(word, w, -1) for w in noise)
        for (word, near), noise in zip(pairs.tolist(), far.tolist(), strict=True)
    ]
    found = _text_losses.word_loss(model, pairs, negatives=3)
    assert found.item() == pytest.approx(-sum(paid) / 2)


def test_hidden_bytes_are_judged_in_bits():
    torch.manual_seed(0)
    model = BERT(V=_text_losses.MASK + 1, d=8, layers=1, heads=2, context=6, pretraining=True)
    text = torch.randint(256, (30,))
    found = _text_losses.filled(text, 5, 6)(SimpleNamespace(model=model.eval()))
    generator = torch.Generator().manual_seed(0)
    hidden = mask_tokens(
        text.view(5, 6), mask=_text_losses.MASK, V=_text_losses.MASK, shares=(1.0, 0.0, 0.0),
        generator=generator,
    )  # fmt: skip
    logits = model(hidden.tokens, where=hidden.labels != -100).logits.detach().double()
    labels = hidden.labels[hidden.labels != -100].tolist()
    bits = [-log_softmax(row)[k] / math.log(2) for row, k in zip(logits, labels, strict=True)]
    assert found["bits per byte"] == pytest.approx(sum(bits) / len(bits), rel=1e-5)


def test_an_answer_is_right_from_beginning_to_end():
    class Answers(nn.Linear):
        def generate(self, x: torch.Tensor, length: int) -> torch.Tensor:
            return torch.tensor([[1, 2, 0], [1, 2, 0], [3, 1, 0]])

    y = torch.tensor([[1, 2, 0, 0], [1, 3, 0, 0], [3, 1, 0, 0]])
    objective = SimpleNamespace(model=Answers(1, 1))
    judged = _text_losses.right_answers(torch.zeros(3, 2), y)(objective)
    assert judged == {"right answers": pytest.approx(2 / 3)}


def test_a_teacher_has_its_share():
    logits, teacher = torch.randn(2, 3, 4, dtype=torch.float64)
    y = torch.tensor([0, 3, 1])
    batch: Any = (logits, y, teacher)
    found = _image_losses.taught_loss(nn.Identity(), batch, temperature=2.0, share=0.75)
    paid = 0.0
    for mine, its, label in zip(logits, teacher, y.tolist(), strict=True):
        answers = [math.exp(x) for x in log_softmax(its / 2)]
        soft = -sum(p * q for p, q in zip(answers, log_softmax(mine / 2), strict=True))
        paid += 0.75 * 2**2 * soft - 0.25 * log_softmax(mine)[label]
    assert found.item() == pytest.approx(paid / 3)


def test_nodes_are_judged_by_those_that_were_not_shown():
    class Graph(nn.Linear):
        y = torch.tensor([0, 1, 1, 0, 1])

        def forward(self) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            return torch.eye(2)[torch.tensor([0, 1, 1, 1, 0])]

    judge = _graph_parts.other_nodes(torch.tensor([0, 1]))
    assert judge(SimpleNamespace(model=Graph(1, 1))) == {"accuracy": pytest.approx(1 / 3)}


def test_distances_are_those_of_pixels_from_0_to_1():
    test = torch.randn(50, 1, 2, 2, dtype=torch.float64)
    moved = test + torch.tensor([0.5, 0.0, -1.0, 2.0]).view(2, 2)
    objective = SimpleNamespace(model=SimpleNamespace(sample=lambda n: moved))
    found = _generative_parts.distance(test, low=-1.0, high=1.0)(objective)
    # Equal covariances: the square of the distance of means, each pixel divided by 2.
    assert found["frechet distance"] == pytest.approx((0.25 + 1 + 4) / 4, rel=1e-4)
