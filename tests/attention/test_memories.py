"""Memory networks: hops written out, chains of facts learned and followed, masks, bad input."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.attention import MemoryNetwork
from vademecum.testing import check_part


def chains(n: int, words: int, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Facts "a, then b" of a permutation in mixed order, questions for the word k later.

    Returns:
        Facts, questions, answers, and the places of the facts that lead there.
    """
    after, order = torch.rand(n, words).argsort(1), torch.rand(n, words).argsort(1)
    facts = torch.stack((order, after.gather(1, order)), -1)
    question, support = torch.randint(words, (n, 1)), []
    word = question
    for _ in range(k):
        support.append((order == word).long().argmax(1))
        word = after.gather(1, word)
    return facts, question, word[:, 0], torch.stack(support, 1)


def summed(tables: Any, words: Tensor) -> Tensor:
    """The sum of the words' vectors, one by one."""
    total = torch.zeros(tables[0].embedding_dim, dtype=torch.float64)
    for table, word in zip(tables, words.tolist(), strict=True):
        total = total + table.weight[word]
    return total


def test_memory_network_is_its_equations():
    net = MemoryNetwork(7, 4, hops=3, fact_words=3, question_words=2, width=5, beta=1.7).double()
    with torch.no_grad():
        net.combine.weight.normal_()
        facts, question = torch.randint(7, (2, 6, 3)), torch.randint(7, (2, 2))
        for row in range(2):
            K, V = (
                torch.stack([summed(tables, fact) for fact in facts[row]])
                for tables in (net.keys, net.values)
            )
            u = summed(net.question, question[row])
            looked = []
            for _ in range(3):
                scores = (1.7 * (K @ u)).exp()
                looked.append(scores / scores.sum())
                u = net.combine.weight @ u + (looked[-1][:, None] * V).sum(0)
            found = net.read(facts, question)
            assert (found.state[row] - u).abs().max() < 1e-12
            assert (found.weights[row] - torch.stack(looked)).abs().max() < 1e-12
            stated = net.answer.weight @ u + net.answer.bias
            assert (net(facts, question)[row] - stated).abs().max() < 1e-12


@pytest.mark.parametrize("recall", ["softmax", "hard"])
def test_memory_network_keeps_the_laws_of_parts(recall):
    net = MemoryNetwork(6, 4, hops=2, recall=recall)
    facts, question, *_ = chains(3, 6, 1)
    check_part(net, (facts, question), devices=("cpu", "meta"))


def test_memory_network_learns_to_chain_two_facts():
    """From answers and the facts that lead there; then also with hard recall, and other facts."""
    torch.manual_seed(0)
    net = MemoryNetwork(8, hops=2)
    adam = torch.optim.Adam(net.parameters(), 0.03)
    for _ in range(120):
        facts, question, answer, support = chains(64, 8, 2)
        state, weights = net.read(facts, question)
        loss = F.cross_entropy(net.answer(state), answer)
        loss = loss + F.nll_loss(weights.log().flatten(0, 1), support.flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
    facts, question, answer, support = chains(500, 8, 2)
    for recall in ("softmax", "hard"):
        net.recall = recall
        assert (net(facts, question).argmax(1) == answer).float().mean() > 0.98
        assert (net.read(facts, question).weights.argmax(2) == support).float().mean() > 0.98
    net.hops = 1
    assert (net(facts, question).argmax(1) == answer).float().mean() < 0.5
    few = facts[:, :5]  # a smaller memory: those chains that are left
    left, net.hops = (support < 5).all(1), 2
    assert (net(few, question).argmax(1) == answer)[left].float().mean() > 0.98


@pytest.mark.parametrize("hops", [1, 3])
def test_hard_recall_reads_one_fact_and_is_the_limit_of_sharp_recall(hops):
    torch.manual_seed(1)
    net = MemoryNetwork(9, hops=hops, recall="hard").double()
    facts, question, *_ = chains(4, 9, 1)
    hard = net.read(facts, question)
    assert torch.equal(hard.weights.sort(2).values[:, :, :-1], torch.zeros(4, hops, 8).double())
    assert (hard.weights.amax(2) == 1).all()
    net.recall, net.beta = "softmax", 1e6
    assert (net.read(facts, question).state - hard.state).abs().max() < 1e-9


@pytest.mark.parametrize("masked", [False, True])
def test_hard_recall_does_not_depend_on_the_temperature(masked):
    """Nor on whether the softmax can tell the leading fact from the others, or is all ones."""
    torch.manual_seed(3)
    net = MemoryNetwork(9, hops=2, recall="hard").double()
    facts, question, *_ = chains(6, 9, 1)
    mask = torch.rand(6, 9) < 0.7 if masked else None
    states = []
    for beta in (1.0, 1e-20, 1e6):
        net.beta = beta
        states.append(net.read(facts, question, mask=mask).state)
    assert torch.equal(states[0], states[1])
    assert torch.equal(states[0], states[2])


def test_hard_recall_has_the_gradient_of_the_softmax():
    torch.manual_seed(2)
    net = MemoryNetwork(5, hops=1, recall="hard").double()
    facts, question, *_ = chains(3, 5, 1)
    up = torch.randn(3, 32, dtype=torch.float64)
    table: Any = net.question[0]
    (found,) = torch.autograd.grad((net.read(facts, question).state * up).sum(), table.weight)
    net.recall = "softmax"
    (soft,) = torch.autograd.grad((net.read(facts, question).state * up).sum(), table.weight)
    assert (found - soft).abs().max() < 1e-12
    assert soft.abs().max() > 1e-3


@pytest.mark.parametrize("recall", ["softmax", "hard"])
def test_facts_that_are_masked_are_not_there(recall):
    net = MemoryNetwork(9, hops=2, recall=recall).double()
    facts, question, *_ = chains(3, 9, 2)
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[:, 6:] = False
    found = net.read(facts, question, mask=mask)
    assert (found.state - net.read(facts[:, :6], question).state).abs().max() < 1e-12
    assert not found.weights[:, :, 6:].any()
    mask[1] = False
    empty = net.read(facts, question, mask=mask)
    assert not empty.weights[1].any()
    twice = net.combine.weight @ (net.combine.weight @ summed(net.question, question[1]))
    assert (empty.state[1] - twice).abs().max() < 1e-12


def test_the_order_of_facts_does_not_matter():
    net = MemoryNetwork(9, hops=2).double()
    facts, question, *_ = chains(3, 9, 2)
    places = torch.randperm(9)
    assert (net(facts[:, places], question) - net(facts, question)).abs().max() < 1e-12


def net(**options: Any) -> MemoryNetwork:
    return MemoryNetwork(5, **options)


FACTS, Q = torch.zeros(2, 4, 2, dtype=torch.long), torch.zeros(2, 1, dtype=torch.long)
BAD = {
    "vocabulary": (lambda: MemoryNetwork(0), "vocabulary must be >= 1, got 0"),
    "hops": (lambda: net(hops=0), "hops must be >= 1, got 0"),
    "recall": (lambda: net(recall="soft"), "recall must be one of 'softmax', 'hard', got 'soft'"),
    "beta": (lambda: net(beta=0.0), "beta must be > 0, got 0.0"),
    "classes": (lambda: net(num_classes=0), "num_classes must be >= 1, got 0"),
    "too large": (lambda: net()(FACTS + 5, Q), "facts must be from 0 to 4, got 5"),
    "negative": (lambda: net()(FACTS, Q - 1), "question must be from 0 to 4, got -1"),
    "floats": (lambda: net()(FACTS.float(), Q), "facts must be numbers of words, int64 or int32"),
    "list": (lambda: net()(FACTS, [0]), "question must be numbers of words, int64 or int32"),
    "words": (lambda: net(fact_words=3)(FACTS, Q), "facts must have the shape (n, facts, 3), got"),
    "axes": (lambda: net()(FACTS, Q[0]), "question must have the shape (n, 1), got (1,)"),
    "none": (lambda: net()(FACTS[:, :0], Q), "facts must have the shape (n, facts, 2), got (2, 0,"),
    "rows": (lambda: net()(FACTS, Q[:1]), "question must have one row for each of 2 memories"),
    "mask": (lambda: net()(FACTS, Q, mask=torch.ones(2, 4)), "mask must be boolean, True where"),
    "inverted mask": (lambda: net()(FACTS, Q, mask=torch.ones(4, 2) > 0), "mask must have the shape"
                      " (2, 4), got (4, 2)"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case, unchecked):
    call, message = BAD[case]
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call()
    assert message in str(error.value)
