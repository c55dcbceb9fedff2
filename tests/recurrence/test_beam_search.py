"""Beam search against the enumeration of all strings, and against a search in plain Python."""

import math
import re

import pytest
import torch

from tests.recurrence.strings import all_strings
from vademecum.recurrence import beam_search
from vademecum.recurrence.sequences.beams import _largest

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Chain:
    """A law of symbols that depends on all before: its state is a number for each string."""

    def __init__(self, k: int, n: int = 1, dtype=torch.float64, device="cpu"):
        generator = torch.Generator().manual_seed(5 * k + n)
        self.k = k
        table = torch.randn(n, k + 1, k, generator=generator, dtype=torch.float64)
        self.table = table.to(device, dtype)
        self.start = torch.full((n,), k, device=device)
        who, sums = torch.arange(n, device=device), torch.zeros(n, device=device)
        self.state = {"who": who, "deep": [sums.to(dtype), (7, "constant")]}

    def __call__(self, tokens, state):
        who, (sums, constants) = state["who"], state["deep"]
        assert constants == (7, "constant")
        logits = self.table[who, tokens] + torch.sin(sums)[:, None] * self.table[who, 0]
        state = {"who": who, "deep": [sums * 1.7 + tokens + 1, constants]}
        return logits.log_softmax(1), state

    def log_prob(self, string, who: int = 0, end: int | None = None) -> tuple[float, int]:
        """By the definition, one string at a time; also its length."""
        state = {"who": torch.tensor([who]), "deep": [self.table.new_zeros(1), (7, "constant")]}
        total, last = 0.0, self.k
        for i, symbol in enumerate(string):
            log_probs, state = self(torch.tensor([last]), state)
            total, last = total + float(log_probs[0, symbol]), symbol
            if symbol == end:
                return total, i + 1
        return total, len(string)


def distinct(k: int, T: int, end: int | None) -> list[tuple[int, ...]]:
    """All strings that go on with the end symbol once it has come."""
    strings = [tuple(s) for s in all_strings(k, T).tolist()]
    if end is None:
        return strings
    return [s for s in strings if end not in s or set(s[s.index(end) :]) == {end}]


@pytest.mark.parametrize("end", [None, 0, 2])
@pytest.mark.parametrize("penalty", [0.0, 0.7, -0.5])
def test_beam_search_that_keeps_all_strings_is_exact(end, penalty):
    k, T, n = 3, 4, 2
    chain = Chain(k, n)
    found = beam_search(chain, chain.start, beam=k**T, max_length=T, state=chain.state, end=end,
                        length_penalty=penalty)  # fmt: skip
    strings = distinct(k, T, end)
    for i in range(n):
        scored = {s: chain.log_prob(s, i, end) for s in strings}
        order = sorted(strings, key=lambda s: -scored[s][0] / scored[s][1] ** penalty)
        number = len(strings)
        assert [tuple(s) for s in found.tokens[i, :number].tolist()] == order
        for j, s in enumerate(order):
            log_prob, length = scored[s]
            assert math.isclose(found.log_probs[i, j], log_prob, abs_tol=1e-12)
            assert math.isclose(found.scores[i, j], log_prob / length**penalty, abs_tol=1e-12)
            assert found.lengths[i, j] == length
        assert torch.all(found.scores[i, number:] == -math.inf), "there are no more strings"
        assert math.isclose(found.log_probs[i].exp().sum(), 1, abs_tol=1e-12)


def plain_search(chain: Chain, who: int, beam: int, T: int, end: int | None, penalty: float):
    """The same search with lists of Python."""
    beams = [((), 0.0, 0, False)]
    for _ in range(T):
        grown = []
        for string, total, length, ended in beams:
            if ended:
                grown.append(((*string, end), total, length, True))
                continue
            for symbol in range(chain.k):
                longer = (*string, symbol)
                grown.append((longer, chain.log_prob(longer, who)[0], length + 1, symbol == end))
        grown.sort(key=lambda b: -b[1] / b[2] ** penalty)
        beams = grown[:beam]
    return beams


@pytest.mark.parametrize("end", [None, 1])
@pytest.mark.parametrize(("beam", "penalty"), [(1, 0.0), (2, 1.0), (3, 0.0), (5, 0.5), (7, 0.0)])
def test_beams_are_those_of_a_plain_search(end, beam, penalty):
    k, T, n = 5, 6, 3
    chain = Chain(k, n)
    found = beam_search(chain, chain.start, beam=beam, max_length=T, state=chain.state, end=end,
                        length_penalty=penalty)  # fmt: skip
    for i in range(n):
        wanted = plain_search(chain, i, beam, T, end, penalty)
        length = found.tokens.shape[2]
        assert [tuple(s) for s in found.tokens[i].tolist()] == [s[:length] for s, *_ in wanted]
        torch.testing.assert_close(
            found.log_probs[i], torch.tensor([total for _, total, *_ in wanted]).double()
        )
        assert found.lengths[i].tolist() == [length for _, _, length, _ in wanted]


def test_beam_of_one_is_greedy():
    chain = Chain(6, 4)
    found = beam_search(chain, chain.start, beam=1, max_length=7, state=chain.state)
    tokens, state = chain.start, chain.state
    for t in range(7):
        log_probs, state = chain(tokens, state)
        tokens = log_probs.argmax(1)
        assert torch.equal(found.tokens[:, 0, t], tokens)


def test_several_starts_give_what_each_gives_alone():
    chain = Chain(5, 4)
    search = {"beam": 3, "max_length": 5, "end": 0, "length_penalty": 0.8}
    together = beam_search(chain, chain.start, state=chain.state, **search)
    for i in range(4):
        state = {"who": torch.tensor([i]), "deep": [torch.zeros(1).double(), (7, "constant")]}
        alone = beam_search(chain, chain.start[:1], state=state, **search)
        length = alone.tokens.shape[2]
        assert torch.equal(together.tokens[i : i + 1, :, :length], alone.tokens)
        torch.testing.assert_close(together.scores[i : i + 1], alone.scores)


def test_search_stops_when_all_have_ended():
    calls = []

    def step(tokens, state):
        calls.append(len(tokens))
        return torch.tensor([[0.9, 0.1]]).log().expand(len(tokens), 2), state

    law = beam_search(step, torch.tensor([0, 0]), beam=1, max_length=50, end=0)
    assert calls == [2]
    assert law.tokens.tolist() == [[[0]], [[0]]]
    found = beam_search(step, torch.tensor([1]), beam=2, max_length=50, end=0)
    assert calls[1:] == [1, 2], "after 0 and 1 come 10 and, given up, 11"
    assert found.tokens.tolist() == [[[0, 0], [1, 0]]]
    assert found.lengths.tolist() == [[1, 2]]
    torch.testing.assert_close(found.scores.exp(), torch.tensor([[0.9, 0.09]]))


def test_search_does_not_go_on_for_strings_that_cannot_be():
    calls = []

    def step(tokens, state):
        calls.append(len(tokens))
        return torch.tensor([[0.0, -math.inf, -math.inf]]).expand(len(tokens), 3), state

    found = beam_search(step, torch.tensor([1]), beam=3, max_length=50, end=0)
    assert calls == [1]
    assert found.lengths.tolist() == [[1, 0, 0]]


def test_what_a_model_says_after_the_end_does_not_matter():
    law = torch.tensor([[math.nan, 5.0], [math.log(0.4), math.log(0.6)]])
    found = beam_search(lambda y, s: (law[y], s), torch.tensor([1]), beam=4, max_length=3, end=0)
    wanted = torch.tensor([[0.4, 0.24, 0.216, 0.144]])
    torch.testing.assert_close(found.scores.exp(), wanted)


def test_length_penalty_by_hand():
    """0 (the end) has 0.4; 1 then 0 has 0.36: the longer one wins if lengths are divided by."""
    law = torch.tensor([[0.4, 0.6], [0.6, 0.4]]).log()
    search = {"beam": 4, "max_length": 2, "end": 0}
    step, start = lambda tokens, state: (law[tokens], state), torch.tensor([0])
    plain = beam_search(step, start, **search)
    assert plain.tokens[0, 0].tolist() == [0, 0]
    torch.testing.assert_close(plain.scores.exp(), torch.tensor([[0.4, 0.36, 0.24, 0.0]]))
    mean = beam_search(step, start, length_penalty=1.0, **search)
    assert mean.tokens[0].tolist() == [[1, 0], [1, 1], [0, 0], [0, 0]]
    torch.testing.assert_close(mean.scores[0, :3].exp(), torch.tensor([0.6, math.sqrt(0.24), 0.4]))
    assert mean.lengths.tolist() == [[2, 2, 1, 0]]


@pytest.mark.parametrize("k", [1, 3, 64, 200])
def test_ties_go_to_the_smaller_place(k):
    torch.manual_seed(k)
    x = torch.randint(4, (7, 200)).double()
    x[0] = 1.0
    x[1, 5:] = -math.inf
    values, places = _largest(x, k)
    wanted, order = x.sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, wanted[:, :k])
    assert torch.equal(places, order[:, :k])


def test_equal_strings_are_ordered_by_their_symbols():
    step = lambda tokens, state: (torch.full((len(tokens), 3), -math.log(3)), state)  # noqa: E731
    found = beam_search(step, torch.tensor([0, 1]), beam=5, max_length=3)
    for row in found.tokens.tolist():
        assert row == all_strings(3, 3)[:5].tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_scores_are_at_least_single_precision(dtype):
    chain = Chain(4, 2, dtype)
    found = beam_search(chain, chain.start, beam=3, max_length=4, state=chain.state)
    assert found.scores.dtype == torch.promote_types(dtype, torch.float32)
    assert torch.all(found.scores[:, :-1] >= found.scores[:, 1:])


def test_impossible_symbols_never_come_out():
    law = torch.tensor([[-math.inf, 0.0], [math.log(0.5), math.log(0.5)]])
    found = beam_search(lambda y, s: (law[y], s), torch.tensor([0]), beam=4, max_length=2)
    assert found.tokens[0, :2].tolist() == [[1, 0], [1, 1]]
    assert found.scores[0, 2:].tolist() == [-math.inf] * 2
    assert found.lengths.tolist() == [[2, 2, 0, 0]]


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("end", [None, 0])
def test_beams_on_a_gpu_are_those_of_the_cpu(end):
    search = {"beam": 6, "max_length": 9, "end": end, "length_penalty": 0.6}
    results = []
    for device in ("cpu", "cuda"):
        chain = Chain(50, 3, device=device)
        results.append(beam_search(chain, chain.start, state=chain.state, **search))
    assert torch.equal(results[0].tokens, results[1].tokens.cpu())
    torch.testing.assert_close(results[0].scores, results[1].scores.cpu())
    flat = torch.zeros(5, 999, device="cuda")
    assert torch.equal(_largest(flat, 7)[1].cpu(), torch.arange(7).expand(5, 7))


Y = torch.tensor([0, 1])


def law(value: float = -1.0, *, rows: int | None = None, dtype=torch.float32, state=None):
    return lambda y, s: (torch.full((rows or len(y), 4), value, dtype=dtype), state)


def spoiled(y, state):
    log_probs = torch.full((len(y), 4), -1.0)
    log_probs[-1, 2] = math.nan
    return log_probs, state


MISTAKES = [
    ({"beam": 0}, "beam must be >= 1, got 0"),
    ({"beam": 1.5}, "beam must be an integer, got 1.5"),
    ({"max_length": 0}, "max_length must be >= 1, got 0"),
    ({"length_penalty": math.nan}, "length_penalty must be"),
    ({"end": -1}, "end must be >= 0, got -1"),
    ({"end": 4}, "end must be <= 3, got 4"),
    ({"start": Y.float()}, "start must be integers, got torch.float32"),
    ({"start": Y[None]}, "start must be a vector of symbols, got (1, 2)"),
    ({"start": Y[:0]}, "start must be a vector of symbols, got (0,)"),
    ({"start": 3}, "start must be a vector of symbols, got int"),
    ({"step": spoiled}, "log-probabilities of step must be <= 0 and not NaN, got nan for start 1"),
    ({"step": spoiled, "end": 0}, "must be <= 0 and not NaN, got nan for start 1"),
    ({"step": law(2.0)}, "log-probabilities of step must be <= 0 and not NaN, got 2 for start 0"),
    ({"step": law(rows=3)}, "log-probabilities of step must have the shape (2, k), got (3, 4)"),
    ({"step": law(-1, dtype=torch.long)}, "must be floating point, got torch.int64"),
    ({"step": law(state=[torch.zeros(1, 2, 5)])}, "state[0] must have 2 rows, got shape (1, 2, 5)"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("given", "message"), MISTAKES)
def test_bad_input_is_refused_by_name(given, message):
    given = {"step": law(), "start": Y, "beam": 2, "max_length": 3, **given}
    step, start = given.pop("step"), given.pop("start")
    with pytest.raises(ValueError, match=re.escape(message)):
        beam_search(step, start, **given)
