import copy
import math
from typing import Any

import jaxtyping
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vademecum.connectionism import _bit_rows, willshaw
from vademecum.connectionism.binary_patterns import sparse_capacity_bound, sparse_patterns
from vademecum.connectionism.willshaw import WillshawMemory, willshaw_information

nan = float("nan")
fraction: Any = 1.5


def patterns(count: int, n: int, share: float) -> Tensor:
    """Random patterns of differing sizes, none of them empty."""
    x = torch.rand(count, n) < share
    x[torch.arange(count), torch.randint(n, (count,))] = True
    return x


def dense(x: Tensor, y: Tensor) -> Tensor:
    """The matrix of the module's docstring, (n_out, n_in)."""
    return (y.double().T @ x.double()).clamp(max=1)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 150), st.integers(1, 150), st.integers(1, 12), st.integers(1, 9),
    st.sampled_from([0.01, 0.2, 0.9]), st.integers(0, 2**32),
)  # fmt: skip
def test_recall_is_the_thresholded_product(n_in, n_out, pairs, batch, share, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        x, y = patterns(pairs, n_in, share), torch.rand(pairs, n_out) < share
        cues = torch.cat([patterns(batch, n_in, share), x])
    memory = WillshawMemory(n_in, n_out)
    memory.store(x, y)
    theta = dense(x, y)
    sums = cues.double() @ theta.T
    assert memory.recall(cues).equal(sums >= cues.sum(1, keepdim=True))
    for threshold in {1, 2, 3, 5, n_in // 2, n_in}:
        if 1 <= threshold <= n_in:
            assert memory.recall(cues, threshold=threshold).equal(sums >= threshold)
    assert memory.load == pytest.approx(theta.mean().item())
    assert (memory.recall(x) | ~y).all()


def test_small_chunks_change_nothing(monkeypatch):
    torch.manual_seed(0)
    x, y = patterns(40, 90, 0.1), patterns(40, 70, 0.1)
    whole = WillshawMemory(90, 70)
    whole.store(x, y)
    expected = whole.recall(x), whole.recall(x, threshold=3), whole.information(x, y)
    monkeypatch.setattr(willshaw, "_CHUNK", {"cpu": 200})
    monkeypatch.setattr(_bit_rows, "_CELLS", 7)
    pieces = WillshawMemory(90, 70)
    pieces.store(x, y)
    assert pieces.links.equal(whole.links)
    assert pieces.recall(x).equal(expected[0])
    assert pieces.recall(x, threshold=3).equal(expected[1])
    assert pieces.information(x, y) == expected[2]


def test_neither_order_nor_repetition_nor_batches_matter():
    x, y = sparse_patterns(30, 100, 6), sparse_patterns(30, 50, 4)
    together, apart = WillshawMemory(100, 50), WillshawMemory(100, 50)
    together.store(x, y)
    for t in [*torch.randperm(30).tolist(), 3, 3]:
        apart.store(x[t : t + 1], y[t : t + 1])
    assert apart.links.equal(together.links)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32, torch.float64]
)
def test_patterns_of_any_dtype(dtype):
    x, y = sparse_patterns(9, 40, 5), sparse_patterns(9, 40, 5)
    reference, memory = WillshawMemory(40), WillshawMemory(40)
    reference.store(x, y)
    memory.store(x.to(dtype), y.to(dtype))
    assert memory.links.equal(reference.links)
    assert memory(x.to(dtype)).equal(reference.recall(x))
    assert memory(x.to(dtype)).dtype == torch.bool


def test_it_is_a_module_with_one_small_buffer():
    memory = WillshawMemory(16384)
    assert [name for name, _ in memory.named_buffers()] == ["links"]
    assert memory.links.numel() * memory.links.element_size() == 32 * 2**20
    assert not list(memory.parameters())
    assert str(WillshawMemory(4, 5)) == "WillshawMemory(n_in=4, n_out=5)"


def test_state_copies_and_casts():
    x, y = sparse_patterns(20, 70, 5), sparse_patterns(20, 30, 3)
    memory = WillshawMemory(70, 30)
    memory.store(x, y)
    loaded = WillshawMemory(70, 30)
    loaded.load_state_dict(memory.state_dict())
    copied = copy.deepcopy(memory)
    memory.double().half()  # leaves bits alone
    for other in (loaded, copied):
        assert other.recall(x).equal(memory.recall(x))
    copied.store(1 - x.int(), 1 - y.int())
    assert not copied.links.equal(memory.links)


def test_a_full_memory_answers_with_every_unit():
    memory = WillshawMemory(5, 3)
    memory.store(torch.ones(1, 5), torch.ones(1, 3))
    assert memory.load == 1
    assert memory.recall(torch.eye(5)).all()


def test_an_empty_cue_needs_a_threshold_and_then_finds_nothing():
    memory = WillshawMemory(5)
    memory.store(torch.ones(1, 5), torch.ones(1, 5))
    cues = torch.zeros(2, 5)
    assert not memory.recall(cues, threshold=1).any()
    cues[0, 1] = 1
    assert memory.recall(cues, threshold=1).equal(torch.tensor([[True] * 5, [False] * 5]))
    with pytest.raises(ValueError, match="cues must have an active unit each, got none in row 1"):
        memory.recall(cues)


def test_information_counts_the_candidates_that_recall_excludes():
    x, y = sparse_patterns(700, 128, 7), sparse_patterns(700, 96, 6)
    y[0] = False
    memory = WillshawMemory(128, 96)
    memory.store(x, y)
    bits = 0.0
    for answer, target in zip(memory.recall(x), y, strict=True):
        k, r = int(answer.sum()), int(target.sum())
        bits += math.log2(math.comb(96, r)) - math.log2(math.comb(k, r))
    assert memory.information(x, y) == pytest.approx(bits / (128 * 96), rel=1e-12)


def test_information_near_capacity():
    n, r = 1024, 10
    s = round(math.log(2) * n**2 / r**2)
    x, y = sparse_patterns(s, n, r), sparse_patterns(s, n, r)
    memory = WillshawMemory(n)
    memory.store(x, y)
    assert memory.load == pytest.approx(0.5, abs=0.02)
    # put in: s log2 C(n, r) bits; about n p^r = 1 spurious unit costs log2 (r + 1) of them
    expected = s / sparse_capacity_bound(n, r) - s * math.log2(r + 1) / n**2
    assert memory.information(x, y) == pytest.approx(expected, abs=0.02)


def memory_of_three() -> WillshawMemory:
    memory = WillshawMemory(3, 2)
    memory.store(torch.tensor([[1, 0, 0]]), torch.tensor([[1, 0]]))
    return memory


x3, y2 = torch.eye(3), torch.ones(3, 2)
BAD = [
    (lambda m: m.store(x3 * 2, y2), r"entries of x must be 0 or 1, got 2.0 at \(0, 0\)"),
    (lambda m: m.store(x3, y2 - 2), r"entries of y must be 0 or 1, got -1.0"),
    (lambda m: m.store(x3 * nan, y2), r"entries of x must be 0 or 1, got nan"),
    (lambda m: m.store(x3 * 0.5, y2), r"entries of x must be 0 or 1, got 0.5"),
    (lambda m: m.store(y2, y2), r"x must be 3 wide, got shape \(3, 2\)"),
    (lambda m: m.store(x3, x3), r"y must be 2 wide, got shape \(3, 3\)"),
    (lambda m: m.store(x3[:2], y2), r"x and y must be as many patterns, got 2 and 3"),
    (lambda m: m.store(x3[:0], y2[:0]), r"x must not be empty, got shape \(0, 3\)"),
    (lambda m: m.store(x3[0], y2[0]), r"x must have 2 axes, got shape \(3,\)"),
    (lambda m: m.store(x3 - x3, y2), r"x must have an active unit each, got none in row 0"),
    (lambda m: m.recall(x3[:0].bool()), r"cues must not be empty, got shape \(0, 3\)"),
    (lambda m: m.recall(torch.eye(4).bool()), r"cues must be 3 wide, got shape \(4, 4\)"),
    (lambda m: m.recall(x3[0].bool()), r"cues must have 2 axes, got shape \(3,\)"),
    (lambda m: m.recall(torch.tensor(True)), r"cues must have 2 axes, got shape \(\)"),
    (lambda m: m.recall([[1, 0, 0]]), r"cues must be a tensor, got list"),
    (lambda m: m.recall(x3.to("meta")), r"cues must be on cpu, got meta"),
    (lambda m: m.recall(x3, threshold=0), r"threshold must be >= 1, got 0"),
    (lambda m: m.recall(x3, threshold=4), r"threshold must be <= 3, got 4"),
    (lambda m: m.recall(x3, threshold=fraction), r"threshold must be an integer, got 1.5"),
    (lambda m: m.information(x3, y2), r"x and y must be stored pairs, got one that is not at 0"),
    (lambda _: WillshawMemory(0), r"n_in must be >= 1, got 0"),
    (lambda _: WillshawMemory(3, fraction), r"n_out must be an integer, got 1.5"),
    (lambda _: willshaw_information(1.5), r"p must be <= 1, got 1.5"),
    (lambda _: willshaw_information(nan), r"p must be"),
    (lambda _: willshaw_information(torch.tensor([0.5, -0.5])), r"p must be from 0 to 1, got -0.5"),
    (lambda _: willshaw_information(torch.tensor([0, 1])), r"p must be floating point"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused_and_changes_nothing(call, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # it would complain first
    memory = memory_of_three()
    with pytest.raises(ValueError, match=message):
        call(memory)
    assert memory.links.equal(memory_of_three().links)


def test_information_function():
    p = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64)
    values = willshaw_information(p)
    quarter = math.log(0.25) * math.log(0.75) / math.log(2)
    expected = torch.tensor([0, quarter, math.log(2), quarter, 0], dtype=torch.float64)
    torch.testing.assert_close(values, expected)
    assert willshaw_information(0.25) == pytest.approx(quarter)
    assert willshaw_information(p.float()).dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda_agrees_with_cpu():
    x, y = sparse_patterns(3000, 500, 9), sparse_patterns(3000, 300, 7)
    here, there = WillshawMemory(500, 300), WillshawMemory(500, 300).cuda()
    here.store(x, y)
    there.store(x.cuda(), y.cuda())
    assert there.links.cpu().equal(here.links)
    for threshold in (None, 6):
        answer = there.recall(x.cuda(), threshold=threshold)
        assert answer.cpu().equal(here.recall(x, threshold=threshold))
    assert there.load == here.load
    assert there.information(x.cuda(), y.cuda()) == pytest.approx(here.information(x, y))
    with pytest.raises(ValueError, match="x must be on cuda:0, got cpu"):
        there.store(x, y)
