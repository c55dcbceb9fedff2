"""Loading by name: the numbers are the published ones, wherever the files lie."""

import gzip
import struct
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from vademecum import data
from vademecum.data import DataNotFoundError, loading, sources
from vademecum.data.sources import FASHION_MNIST, Source

installed = pytest.mark.skipif(
    not all((sources.Path(FASHION_MNIST.folder) / f.name).is_file() for f in FASHION_MNIST.files),
    reason="dataset-fashion-mnist is not installed",
)


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No installed files, no cache, a folder of one's own."""
    monkeypatch.setenv(sources.VARIABLE, str(tmp_path))
    monkeypatch.setattr(sources, "cache_folder", lambda name: None)
    return tmp_path


@pytest.fixture
def small(monkeypatch, offline):
    """MNIST with three images to train and two to test, in the folder of one's own."""
    source = Source("mnist", sources.MNIST.files, {"train": 3, "test": 2}, ())
    monkeypatch.setitem(loading._IMAGES, "mnist", (loading._idx(source), loading.DIGITS, 255))
    folder = offline / "mnist"
    folder.mkdir()
    write(folder / "train-images-idx3-ubyte.gz", images(3))
    write(folder / "train-labels-idx1-ubyte.gz", np.array([7, 0, 9], np.uint8))
    write(folder / "t10k-images-idx3-ubyte", images(2) + 1)
    write(folder / "t10k-labels-idx1-ubyte", np.array([1, 2], np.uint8))
    return folder


def images(n: int) -> np.ndarray:
    return (np.arange(n * 784) % 251).astype(np.uint8).reshape(n, 28, 28)


def write(path, array: np.ndarray) -> None:
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    zipped = path.suffix == ".gz"
    path.write_bytes(gzip.compress(head + array.tobytes()) if zipped else head + array.tobytes())


def test_digits_are_those_of_scikit_learn():
    bunch = load_digits()
    x, y, classes = data.load("digits", split="all", dtype=torch.float64)
    assert (x[:, 0].numpy() == bunch.images / 16).all()  # type: ignore[union-attr]
    assert (y.numpy() == bunch.target).all()  # type: ignore[union-attr]
    assert classes == tuple("0123456789")
    parts = [data.load("digits", split=s, dtype=torch.float64) for s in ("train", "test")]
    assert torch.equal(torch.cat([part.x for part in parts]), x)
    assert torch.equal(torch.cat([part.y for part in parts]), y)
    assert all(part.y.bincount().min() >= 30 for part in parts)


@installed
def test_fashion_mnist_is_the_published_one():
    x, y, classes = data.load("fashion_mnist", download=False)
    assert (x.shape, x.dtype, y.dtype) == ((60_000, 1, 28, 28), torch.float32, torch.int64)
    assert y.bincount().tolist() == [6000] * 10
    # The mean and deviation that everybody normalises with.
    assert x.double().mean().item() == pytest.approx(0.2860, abs=5e-5)
    assert x.double().std().item() == pytest.approx(0.3530, abs=5e-5)
    assert [classes[i] for i in y[:3]] == ["Ankle boot", "T-shirt/top", "T-shirt/top"]


@installed
def test_fashion_mnist_levels():
    test = data.load("fashion_mnist", split="test", dtype=torch.uint8)
    both = data.load("fashion_mnist", split="all", dtype=torch.uint8)
    assert test.x.dtype == torch.uint8
    assert len(both.x) == len(both.y) == 70_000
    assert torch.equal(both.x[60_000:], test.x)
    assert torch.equal(both.y[60_000:], test.y)
    scaled = data.load("fashion_mnist", split="test", dtype=torch.float64).x
    assert torch.equal(scaled, test.x.double() / 255)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_own_folder(small, dtype):
    x, y, _ = data.load("mnist", dtype=dtype)
    levels = torch.from_numpy(images(3))[:, None]
    assert torch.equal(x, levels.to(dtype) / 255)
    assert y.tolist() == [7, 0, 9]
    both = data.load("mnist", split="all", dtype=torch.uint8)
    assert both.x[3:].equal(torch.from_numpy(images(2) + 1)[:, None])
    assert both.y.tolist() == [7, 0, 9, 1, 2]


WRONG_FILES = {
    "fewer images": (
        "train-images-idx3-ubyte.gz",
        images(2),
        r"\(3, 28, 28\), got uint8 of .*2, 28",
    ),
    "fewer labels": ("train-labels-idx1-ubyte.gz", np.zeros(2, np.uint8), r"\(3,\), got .* \(2,\)"),
    "label": ("train-labels-idx1-ubyte.gz", np.full(3, 10, np.uint8), "labels 0 to 9, got 10"),
    "flat": ("train-images-idx3-ubyte.gz", images(3).reshape(3, 784), r"shape \(3, 784\)"),
}


@pytest.mark.parametrize(("name", "array", "message"), WRONG_FILES.values(), ids=WRONG_FILES.keys())
def test_wrong_files(small, name, array, message):
    write(small / name, array)
    with pytest.raises(ValueError, match=f"{name} must .*{message}"):
        data.load("mnist")


def test_corrupt_file_is_named(small):
    path = small / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz must be a whole gzip file"):
        data.load("mnist")


def test_installed_folder_comes_first(small, monkeypatch, tmp_path):
    other = tmp_path / "installed"
    other.mkdir()
    for path in small.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    write(other / "train-labels-idx1-ubyte.gz", np.array([4, 4, 4], np.uint8))
    source = Source("mnist", sources.MNIST.files, {"train": 3, "test": 2}, (), "pack", str(other))
    monkeypatch.setitem(loading._IMAGES, "mnist", (loading._idx(source), loading.DIGITS, 255))
    assert data.load("mnist").y.tolist() == [4, 4, 4]
    (other / "train-images-idx3-ubyte.gz").unlink()
    assert data.load("mnist").y.tolist() == [7, 0, 9]


def test_cifar10(monkeypatch, offline):
    monkeypatch.setattr(loading, "CIFAR10", loading.CIFAR10._replace(counts={"test": 1}))
    folder = offline / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    for i, name in enumerate(names):
        (folder / name).write_bytes(bytes([i]) + bytes([51 * i]) * 3072)
    x, y, classes = data.load("cifar10", split="all", dtype=torch.float64)
    assert y.tolist() == [0, 1, 2, 3, 4, 5]
    assert torch.equal(x[:, 2, 31, 31], torch.arange(6).double() * 51 / 255)
    assert classes[9] == "truck"
    assert data.load("cifar10", split="test").y.tolist() == [5]


def test_karate_is_that_of_networkx():
    graph, oracle = data.load("karate"), nx.karate_club_graph()
    pairs = list(map(tuple, graph.edge_index.T.tolist()))
    assert pairs == sorted({*oracle.edges, *((j, i) for i, j in oracle.edges)})
    assert [graph.classes[c] for c in graph.y] == [oracle.nodes[i]["club"] for i in range(graph.n)]


def test_text_is_the_library():
    parts = [data.load("stdlib_text", split=split).text for split in ("train", "test")]
    text, alphabet = data.load("stdlib_text", split="all")
    assert "".join(parts) == text
    assert len(parts[0]) == len(text) * 9 // 10
    assert alphabet == "".join(sorted(set(text)))
    places = [text.index(line) for line in ("class ABCMeta", "def heappush(", "class ZipFile:")]
    assert places == sorted(places)
    assert text.count('"""Heap queue algorithm') == 1
    assert "idlelib" not in {line[:7] for line in text.splitlines()}
    assert data.load("stdlib_text", split="all").text == text


def test_text_without_sources(monkeypatch):
    monkeypatch.setattr(loading, "stdlib_folder", lambda: None)
    with pytest.raises(DataNotFoundError, match="sources of the standard library"):
        data.load("stdlib_text")


ERRORS = {
    "name": (("minst", {}), "name must be one of 'digits', .*, got 'minst'"),
    "split": (("digits", {"split": "valid"}), "split must be one of .*, got 'valid'"),
    "dtype": (("digits", {"dtype": torch.int64}), "floating point or torch.uint8, got torch.int64"),
    "graph": (("karate", {"split": "test"}), "split must be 'train' or 'all' for karate"),
}


@pytest.mark.parametrize(("arguments", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_argument_errors(arguments, message):
    name, options = arguments
    with pytest.raises(ValueError, match=message):
        data.load(name, **options)


def test_not_found_says_what_to_do(monkeypatch, offline):
    source = FASHION_MNIST._replace(folder=str(offline / "nowhere"))
    with pytest.raises(FileNotFoundError) as caught:
        source.get("test", download=False)
    message = str(caught.value)
    assert isinstance(caught.value, DataNotFoundError)
    for part in (
        "apt install dataset-fashion-mnist",
        "pip install vademecum[data]",
        "$VADEMECUM_DATA/fashion_mnist/: t10k-images-idx3-ubyte.gz (or t10k-images-idx3-ubyte)",
        f"looked in {offline / 'nowhere'}",
        f"looked in {offline / 'fashion_mnist'}",
    ):
        assert part in message
    assert "train-images" not in message


def test_describe(small):
    entries = {entry.name: entry for entry in data.describe()}
    assert tuple(entries) == data.DATASETS
    assert entries["mnist"].found == small
    assert entries["cifar10"].found is None
    assert "VADEMECUM_DATA" in entries["cifar10"].hint
    for entry in entries.values():
        assert (entry.found is None) == bool(entry.hint)
        assert entry.found is None or entry.found.exists()


def test_public_names_load_lazily():
    code = """
import sys, torch, vademecum.data
heavy = {"pooch", "requests", "networkx", "sklearn", "rich", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
assert all(hasattr(vademecum.data, name) for name in vademecum.data.__all__)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gpu():
    here, there = data.load("digits"), data.load("digits", device="cuda")
    assert there.x.is_cuda
    assert there.y.is_cuda
    assert torch.equal(there.x.cpu(), here.x)
    assert torch.equal(data.load("karate", device="cuda").y.cpu(), data.load("karate").y)
