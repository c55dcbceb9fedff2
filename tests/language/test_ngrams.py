"""N-gram models against dictionaries of tuples, and among other language models."""

import math
import re
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch

from vademecum.language import NGramModel, generate, perplexity
from vademecum.language.ngrams._shares import discounts
from vademecum.testing import check_part


class ByHand:
    """Kneser and Ney's interpolation as textbooks write it, a dictionary for each order."""

    def __init__(self, lines, order, V, discount=None):
        self.order, self.V = order, V
        raw = [Counter() for _ in range(order + 2)]
        before = [defaultdict(set) for _ in range(order + 2)]
        for line in lines:
            for k in range(1, order + 2):
                for i in range(len(line) - k + 1):
                    raw[k][tuple(line[i : i + k])] += 1
                    before[k][tuple(line[i : i + k])].add(line[i - 1] if i else "start")
        lower = [{gram: len(who) for gram, who in before[k].items()} for k in range(order)]
        self.counts = [*lower, dict(raw[order])]
        self.D = [self.taken(list(counts.values()), discount) for counts in self.counts]

    @staticmethod
    def taken(counts, discount):
        if discount is not None:
            return [0.0, discount, discount, discount]
        n = [counts.count(j) for j in range(5)]
        y = n[1] / (n[1] + 2 * n[2]) if n[1] and n[2] else 0.5
        if not all(n[1:]):
            return [0.0, y, y, y]
        return [0.0, *(max(0.0, j - (j + 1) * y * n[j + 1] / n[j]) for j in (1, 2, 3))]

    def chance(self, context, token):
        if context is None:
            return 1 / self.V
        k = len(context) + 1
        after = {g[-1]: c for g, c in self.counts[k].items() if g[:-1] == context}
        below = self.chance(context[1:] if context else None, token)
        if not after:
            return below
        total = sum(after.values())
        rest = sum(self.D[k][min(c, 3)] for c in after.values()) / total
        count = after.get(token, 0)
        return (count - self.D[k][min(count, 3)]) / total + rest * below

    def log_prob(self, line):
        return [
            math.log(self.chance(tuple(line[max(0, t - self.order + 1) : t]), line[t]))
            for t in range(len(line))
        ]


def texts(draw=0, V=5, n=9):
    rng = np.random.default_rng(draw)
    return [rng.choice(V, size=rng.integers(1, 40), p=[0.5, 0.25, 0.15, 0.07, 0.03]).tolist()
            for _ in range(n)]  # fmt: skip


@pytest.mark.parametrize("discount", [None, 0.6])
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_kneser_ney_equals_the_textbook(order, discount):
    lines = texts()
    model = NGramModel(lines, order, V=7, discount=discount)
    peer = ByHand(lines, order, 7, discount)
    for line in [*texts(1)[:4], [6, 5, 0, 1, 6], lines[0]]:
        found = model.log_prob(torch.tensor(line))
        np.testing.assert_allclose(found, peer.log_prob(line), rtol=0, atol=1e-12)


def test_discounts_are_those_of_chen_and_goodman():
    counts = torch.tensor([1] * 8 + [2] * 4 + [3] * 3 + [4] * 1 + [9])
    y = 8 / 16
    wanted = [1 - 2 * y * 4 / 8, 2 - 3 * y * 3 / 4, 3 - 4 * y / 3]
    assert discounts(counts, None).tolist() == pytest.approx(wanted)
    assert discounts(torch.tensor([1, 1, 2, 5]), None).tolist() == [0.5] * 3  # 2 / (2 + 2)
    assert discounts(torch.tensor([7, 9]), None).tolist() == [0.5] * 3
    many = torch.tensor([1] * 9 + [2] + [3] * 50 + [4])
    assert discounts(many, None)[1] == 0  # not negative


@pytest.mark.parametrize("smoothing", ["none", "add_one"])
@pytest.mark.parametrize("order", [1, 2, 4])
def test_frequencies_equal_counting(order, smoothing):
    lines, V = texts(), 6
    model = NGramModel(lines, order, V=V, smoothing=smoothing)
    one = smoothing == "add_one"
    for line in (*texts(1)[:3], [5, 5, 0]):
        found = model.log_prob(torch.tensor(line)).exp()
        for t, token in enumerate(line):
            context = line[max(0, t - order + 1) : t]
            k = len(context)
            hits = Counter(
                other[i + k]
                for other in lines
                for i in range(len(other) - k)
                if other[i : i + k] == context
            )
            size = sum(hits.values()) + V * one
            wanted = (hits[token] + one) / size if size else 0.0
            assert float(found[t]) == pytest.approx(wanted, abs=1e-14)


@pytest.mark.parametrize("smoothing", ["kneser_ney", "add_one", "none"])
@pytest.mark.parametrize("order", [1, 3])
def test_logits_agree_with_log_prob(order, smoothing):
    model = NGramModel(texts(), order, V=6, smoothing=smoothing)
    x = torch.randint(6, (4, 9), generator=torch.Generator().manual_seed(0))
    logits, found = model(x), model.log_prob(x)
    torch.testing.assert_close(logits[:, :-1].gather(2, x[:, 1:, None])[..., 0], found[:, 1:])
    sums = logits.exp().sum(2)
    known = sums > 0
    torch.testing.assert_close(sums[known], torch.ones_like(sums[known]))
    assert known.all() or smoothing == "none"
    for row, alone in zip(found, x, strict=True):
        torch.testing.assert_close(model.log_prob(alone), row)


def test_lines_of_any_kind():
    lines = texts()
    model = NGramModel(lines, 3, V=5)
    x = torch.tensor(lines[0])
    for kind in (iter(lines), [torch.tensor(line) for line in lines], tuple(map(np.array, lines))):
        torch.testing.assert_close(NGramModel(kind, 3, V=5).log_prob(x), model.log_prob(x))
    rows = torch.tensor([[0, 1, 2], [2, 1, 0]])
    apart = NGramModel(rows, 2).log_prob(rows)
    torch.testing.assert_close(NGramModel(rows.tolist(), 2).log_prob(rows), apart)
    joined = NGramModel(rows.flatten(), 2).log_prob(rows)
    assert not torch.allclose(joined, apart)  # 2 2 is seen in one line only


def test_samples_follow_the_model():
    model = NGramModel(texts(), 3, V=5)
    drawn = model.sample(40_000, 3, generator=torch.Generator().manual_seed(0))
    seen = Counter(map(tuple, drawn.tolist()))
    every = torch.cartesian_prod(*[torch.arange(5)] * 3)
    chances = model.log_prob(every).sum(1).exp()
    assert float(chances.sum()) == pytest.approx(1)
    wanted = 40_000 * chances
    found = torch.tensor([float(seen[tuple(row)]) for row in every.tolist()])
    likely = wanted > 5
    chi = ((found - wanted).square() / wanted)[likely].sum()
    freedom = int(likely.sum())
    assert chi < freedom + 6 * math.sqrt(2 * freedom)


def test_sample_goes_on_from_a_prompt():
    model = NGramModel(torch.tensor([0, 1, 2, 0, 1, 2, 0]), 3, smoothing="none")
    assert model.sample(2, 5, prompt=torch.tensor([1, 2])).tolist() == [[0, 1, 2, 0, 1]] * 2
    with pytest.raises(ValueError, match="the model must know a next token, got an unseen context"):
        model.sample(1, 2, prompt=torch.tensor([2, 2]))


def test_other_parts_take_it_as_a_language_model():
    model = NGramModel(texts(), 3, V=5)
    x = torch.tensor(texts(3)[0][:12])[None]
    loss = float(-model.log_prob(x)[:, 1:].mean())
    assert perplexity(model, x).perplexity == pytest.approx(math.exp(loss))
    cycle = NGramModel(torch.tensor([0, 1, 2] * 30), 3)
    made = generate(cycle, torch.tensor([[0, 1]]), max_new_tokens=4, temperature=0.0)
    assert made.tokens[0].tolist() == [2, 0, 1, 2]


def test_laws_of_parts():
    model = NGramModel(texts(), 3, V=5)
    assert not list(model.parameters())
    checked = check_part(model, torch.randint(5, (3, 6)), devices=("cpu",))
    assert "save and load" in checked or checked


def test_short_texts_and_repr():
    model = NGramModel([[2]], 4)
    assert model.log_prob(torch.tensor([2, 2, 2])).isfinite().all()
    assert repr(model) == "NGramModel(order=4, V=3, smoothing='kneser_ney', 1 n-grams)"


MODEL = NGramModel(torch.tensor([0, 1, 2]), 2)
MISTAKES = [
    (lambda: NGramModel([], 2), "texts must hold a token, got none"),
    (lambda: NGramModel(["a b"], 2), "texts must hold ids, got words"),
    (lambda: NGramModel([[0, 5]], 2, V=5), "ids must be < 5, the vocabulary's size, got 5"),
    (lambda: NGramModel([[0, -5]], 2), "ids must be >= 0, got -5"),
    (lambda: NGramModel([[0.5]], 2), "texts must hold words or ids, got tokens of the type float"),
    (lambda: NGramModel([[0]], 0), "order must be >= 1, got 0"),
    (lambda: NGramModel([[0]], 2, V=2**62), "V must be <= 2147483648, got 4611686018427387904"),
    (lambda: NGramModel([[0]], 2, V=0), "V must be >= 1, got 0"),
    (lambda: NGramModel([[0]], 2, smoothing="good"), "smoothing must be one of 'kneser_ney', 'add"),
    (lambda: NGramModel([[0]], 2, discount=1.5), "discount must be <= 1, got 1.5"),
    (lambda: MODEL(torch.tensor([[0, 3]])), "tokens must be between 0 and 2, got 0 to 3"),
    (lambda: MODEL.log_prob(torch.tensor([-1])), "tokens must be between 0 and 2, got -1 to -1"),
    (lambda: MODEL(torch.tensor([0, 1])), "tokens must have the shape (n, T), not empty, got (2,)"),
    (lambda: MODEL(torch.zeros(1, 0).long()), "tokens must have the shape (n, T), not empty, got "),
    (lambda: MODEL(torch.zeros(1, 2)), "tokens must be integers, got torch.float32"),
    (lambda: MODEL.sample(0, 2), "n must be >= 1, got 0"),
    (lambda: MODEL.sample(1, 0), "T must be >= 1, got 0"),
    (lambda: MODEL.sample(1, 2, prompt=torch.tensor([7])), "tokens must be between 0 and 2, got 7"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=[m[1][:40] for m in MISTAKES])
def test_bad_input(unchecked, call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
