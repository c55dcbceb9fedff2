"""Answers in context: by hand, in words, and by length."""

import math

import pytest
import torch
from torch import nn

from vademecum.language import GPT, few_shot
from vademecum.testing import check_instrument


def model() -> GPT:
    made = GPT(V=9, d=12, layers=2, heads=3, context=30)
    for p in made.parameters():
        nn.init.normal_(p, 0, 0.5)
    return made.double()


EXAMPLES = [([1, 2], [3]), ([2], [4, 5])]
QUERIES = [([1], [[3], [4, 5], [6, 7, 8]]), ([2, 2], [[5], [0]])]


def by_hand(net: nn.Module, before: list[int], option: list[int]) -> float:
    logs = net(torch.tensor([[*before, *option[:-1]]]))[0].detach().log_softmax(1)
    return sum(float(logs[len(before) - 1 + i, t]) for i, t in enumerate(option))


@pytest.mark.parametrize("shots", [0, 1, 2])
@pytest.mark.parametrize("separator", [[], [8, 0]])
def test_few_shot_by_hand(shots, separator):
    net = model()
    examples = EXAMPLES[:shots]
    found = few_shot(net, examples, QUERIES, [1, 0], separator=separator)
    context = [t for q, a in examples for t in (*q, *a, *separator)]
    right = 0
    for i, (question, options) in enumerate(QUERIES):
        logs = [by_hand(net, [*context, *question], option) for option in options]
        torch.testing.assert_close(found.log_probs[i], torch.tensor(logs).double())
        assert int(found.answers[i]) == logs.index(max(logs))
        right += logs.index(max(logs)) == (1, 0)[i]
    assert found.accuracy == right / 2


def test_options_by_length_are_compared_token_by_token():
    table = torch.tensor([[0.1, 0.5, 0.4], [0.1, 0.1, 0.8], [0.2, 0.2, 0.6]]).log()
    net = nn.Embedding.from_pretrained(table)
    queries = [([0], [[1], [2, 2]])]  # 0.5 against 0.4 * 0.6, whose root is 0.49 ...
    assert few_shot(net, [], queries).answers.tolist() == [0]
    longer = [([0], [[1], [2, 2, 2, 2]])]  # ... and 0.4 * 0.6^3, whose fourth root is 0.54
    assert few_shot(net, [], longer, by_length=True).answers.tolist() == [1]
    assert float(few_shot(net, [], queries, by_length=True).log_probs[0][1]) == pytest.approx(
        math.log(0.24), rel=1e-6
    )


def test_words_are_encoded():
    net = model()
    ids = {"a": 1, "b": 2, "c": 3, " ": 0}
    spoken = few_shot(
        net, [("a", "b")], [("c", ["a", "bc"])], separator=" ", encode=lambda s: [ids[x] for x in s]
    )
    written = few_shot(net, [([1], [2])], [([3], [[1], [2, 3]])], separator=[0])
    assert spoken.log_probs[0].equal(written.log_probs[0])


def test_few_shot_keeps_the_laws_of_instruments():
    def logs(net: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return few_shot(net, EXAMPLES, [(row, [[1], [2, 3]]) for row in x]).log_probs

    check_instrument(logs, model().train(), torch.randint(9, (4, 5)), outputs=None)
