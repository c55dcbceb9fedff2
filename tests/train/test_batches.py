"""Batches from tensors, data sets and tokens: the same for any number of workers."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from tests.train.fitted import assert_same, fitted, network, points
from vademecum.train import Tokens
from vademecum.train._batches import source_of
from vademecum.train._order import Order

CPU = torch.device("cpu")


def read(data: Any, workers: int = 0, steps: int = 7) -> list[Any]:
    source = source_of(data, device=CPU, seed=0, workers=workers)
    order = Order(len(source), 4, seed=0, accumulate=2)
    return list(source.batches(order.all_parts(1, steps)))


class Noisy(Dataset[Any]):
    """A data set that draws from all global generators."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> Any:
        drawn = [float(torch.rand(())), np.random.random(), random.random()]  # noqa: NPY002
        return torch.tensor([i, *drawn], dtype=torch.float64)


def numpy_state() -> list[int]:
    state: Any = np.random.get_state()  # noqa: NPY002
    return state[1].tolist()


def test_tensors_are_indexed_in_any_structure():
    x, y = torch.arange(10.0), torch.arange(10) * 2
    order = Order(10, 4, seed=0, accumulate=2)
    expected = [part.examples for part in order.all_parts(1, 7)]
    assert all(a.equal(x[i]) for a, i in zip(read(x), expected, strict=True))
    pairs, named = read((x, y)), read({"a": x, "b": [y]})
    for i, pair, entry in zip(expected, pairs, named, strict=True):
        assert type(pair) is tuple
        assert pair[0].equal(x[i])
        assert pair[1].equal(y[i])
        assert entry["a"].equal(x[i])
        assert entry["b"][0].equal(y[i])


def test_a_data_set_is_read_as_tensors_are():
    x, y = points(20)
    for one, other in zip(read((x, y)), read(TensorDataset(x, y)), strict=True):
        assert one[0].equal(other[0])
        assert one[1].equal(other[1])


@pytest.mark.parametrize("workers", [1, 2])
def test_random_numbers_of_examples_do_not_depend_on_workers(workers):
    alone, others = read(Noisy()), read(Noisy(), workers)
    assert all(a.equal(b) for a, b in zip(alone, others, strict=True))
    everything = torch.cat(alone)
    assert len(everything[:, 1].unique()) == len(everything)  # others in another epoch


def test_reading_leaves_global_random_numbers_alone():
    torch.manual_seed(0)
    states = torch.get_rng_state(), numpy_state()
    for workers in (0, 1):
        read(Noisy(), workers)
    assert states[0].equal(torch.get_rng_state())
    assert states[1] == numpy_state()


def test_training_is_the_same_with_workers():
    data = TensorDataset(*points(30))
    alone = fitted(data=points(30), steps=6)
    assert_same(alone, fitted(data=data, steps=6))
    assert_same(alone, fitted(data=data, steps=6, workers=2))


def test_a_data_set_may_collate_by_itself():
    class Ragged(Noisy):
        collate = staticmethod(lambda rows: torch.stack(rows)[:, 0])

        def __getitem__(self, i: int) -> Any:
            return torch.tensor([float(i)])

    assert read(Ragged())[0].ndim == 1


# Tokens


@pytest.mark.parametrize("kind", ["tensor", "npy", "bin"])
def test_windows_of_tokens(kind, tmp_path):
    tokens = np.arange(100, 130, dtype=np.uint16)
    np.save(tmp_path / "a.npy", tokens)
    tokens.tofile(tmp_path / "a.bin")
    sources = {
        "tensor": torch.arange(100, 130),
        "npy": tmp_path / "a.npy",
        "bin": tmp_path / "a.bin",
    }
    windows = Tokens(sources[kind], length=4, stride=3)
    assert len(windows) == 9
    expected = torch.stack([torch.arange(100 + 3 * i, 104 + 3 * i) for i in (8, 0, 5)])
    found = windows.read(torch.tensor([8, 0, 5]))
    assert found.dtype == torch.int64
    assert found.equal(expected)
    batches = read(windows)
    assert batches[0].shape == (2, 4)
    assert batches[0][:, 1].equal(batches[0][:, 0] + 1)


def test_the_windows_without_a_stride_lie_side_by_side():
    windows = Tokens(torch.arange(11), length=5)
    assert windows.read(torch.arange(len(windows))).tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert repr(windows) == "Tokens(a tensor, length=5, stride=5)"


# Refusals


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            (torch.ones(3), torch.ones(4)),
            r"equally many rows, got \{'data\[0\]': 3, 'data\[1\]': 4",
        ),
        (torch.ones(()), "data must be a tensor with examples in its rows, got a number"),
        ({"x": torch.ones(3), "name": "a"}, r"data\['name'\] must be a tensor .* got str"),
        (torch.ones(0, 3), "data must hold at least one example, got none"),
        (Endless(), "got an IterableDataset"),
        (3, "data must be tensors, a map-style Dataset .* got int"),
    ],
)
def test_data_that_is_none(data, message):
    with pytest.raises(ValueError, match=message):
        fitted(network(), data)


def test_workers_for_what_is_in_memory_are_refused():
    with pytest.raises(ValueError, match="workers must be 0 for data in memory, got 2"):
        fitted(workers=2)


def test_files_that_hold_no_tokens(tmp_path):
    (tmp_path / "empty.bin").write_bytes(b"")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "floats.npy", np.ones(9))
    np.save(tmp_path / "short.npy", np.arange(3))
    for name, message in {
        "none.bin": "must be a file of tokens, got .*none.bin: .*No such file",
        "empty.bin": "must be a file of tokens, got .*empty",
        "objects.npy": "must be a file of tokens, got .*objects",
        "floats.npy": r"must be integers along one axis, got float64 of shape \(9,\)",
        "short.npy": "must hold at least 4 tokens, one window, got 3 in",
    }.items():
        with pytest.raises(ValueError, match=message):
            Tokens(tmp_path / name, length=4)


def test_a_log_says_of_which_epoch_the_batch_of_a_step_was():
    run = fitted(data=points(20), batch_size=8, steps=7)
    assert run.history["step"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert run.history["epoch"].tolist() == [0, 0, 0, 1, 1, 1, 2]
