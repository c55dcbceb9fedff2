"""Tangent kernels in every way that there is: the same numbers, up to rounding."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from torch import nn

from tests.gradients.nets import NETS, make
from tests.kernels.test_tangent_kernel import OUTPUTS, close, kernel, rows
from vademecum.kernels import _layer_products, _pair_sums, _tangent_uses, empirical_ntk

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even")

WAYS = ["norms", "planar", "language", "words", "twice", "attention"]


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("gram", [True, False])
def test_gram_matrices_and_gradients(name, gram, monkeypatch):
    """Whichever of both is cheaper, the other one gives the same."""
    chosen = []

    def choose(u, v, sums):
        kinds = {use.kind for use in (*u, *v)}
        chosen.append(kinds in ({"product"}, {"transposed"}) and gram)
        return chosen[-1]

    monkeypatch.setattr(_layer_products, "_factored", choose)
    all_kinds_are_right(name)
    assert any(chosen) is gram


@pytest.mark.parametrize("name", ["language", "words", "planar", "twice"])
def test_small_portions_of_everything(name, monkeypatch):
    """One unit of a parameter, one example of patches, one pair of tokens at a time."""
    monkeypatch.setattr(_layer_products, "_GATHERED", 1)
    monkeypatch.setattr(_pair_sums, "_PAIRS", {"cpu": 1})
    monkeypatch.setattr(_pair_sums, "_ROWS", {"cpu": 2})
    monkeypatch.setattr(_tangent_uses, "_PATCHES", {"cpu": 1})
    monkeypatch.setattr(_layer_products, "portions", lambda n, **_: portions_of_one(n))
    all_kinds_are_right(name)


def all_kinds_are_right(name):
    """The kernels of a network, from the rows of its Jacobian."""
    net, x, _ = make(name, 5)
    other = NETS[name][1](4)
    J, L = rows(net, x), rows(net, other)
    for outputs in OUTPUTS:
        close(empirical_ntk(net, x, outputs=outputs), kernel(J, J, outputs))
        close(empirical_ntk(net, x, other, outputs=outputs), kernel(J, L, outputs))


def portions_of_one(n):
    return [slice(i, i + 1) for i in range(n)]


@pytest.mark.parametrize("listed", [0, 10**9])
def test_tokens_in_common(listed, monkeypatch):
    """Pairs that are listed, or gradients in the rows of all tokens at hand."""
    monkeypatch.setattr(_layer_products, "_LISTED", listed)
    net = nn.Sequential(nn.Embedding(50, 3, padding_idx=0), nn.Flatten(), nn.Tanh(),
                        nn.Linear(12, 2)).double()  # fmt: skip
    for most in (50, 3):
        x, other = torch.randint(most, (6, 4)), torch.randint(most, (5, 4))
        J, L = rows(net, x), rows(net, other)
        for outputs in OUTPUTS:
            close(empirical_ntk(net, x, outputs=outputs), kernel(J, J, outputs))
            close(empirical_ntk(net, x, other, outputs=outputs), kernel(J, L, outputs))


def test_few_multiplications_are_chosen():
    """Gram matrices for short times and wide layers, gradients for long times and narrow ones."""
    chosen = {}

    def spy(u, v, sums):
        chosen[u[0].names["weight"]] = plain(u, v, sums)
        return chosen[u[0].names["weight"]]

    plain = _layer_products._factored
    net = nn.Sequential(nn.Linear(40, 3), nn.Tanh(), nn.Flatten(), nn.Linear(60, 2))
    wide = nn.Sequential(nn.Linear(200, 90), nn.Tanh(), nn.Flatten(), nn.Linear(180, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_layer_products, "_factored", spy)
        empirical_ntk(net, torch.randn(4, 20, 40))
        assert chosen == {"0.weight": False, "3.weight": True}
        empirical_ntk(wide, torch.randn(4, 2, 200))
    assert chosen == {"0.weight": True, "3.weight": True}


NET, N = "planar", 7


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_memory(outputs):
    net, x, _ = make(NET, N)
    other = NETS[NET][1](4)
    with pytest.raises(ValueError, match="memory must be >= ") as refused:
        empirical_ntk(net, x, outputs=outputs, memory=1)
    least = int(str(refused.value).split(">= ")[1].split()[0])
    for memory in (least, 4 * least):
        found = empirical_ntk(net, x, outputs=outputs, memory=memory)
        close(found, empirical_ntk(net, x, outputs=outputs), 1e-13)
        found = empirical_ntk(net, x, other, outputs=outputs, memory=memory)
        close(found, empirical_ntk(net, x, other, outputs=outputs), 1e-13)


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_executors(pool):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, other = torch.randn(11, 3).double(), torch.randn(6, 3).double()
    make_pool = {
        "threads": lambda: ThreadPoolExecutor(3),
        "processes": lambda: ProcessPoolExecutor(1, mp_context=get_context("spawn")),
    }[pool]
    with make_pool() as executor:
        found = empirical_ntk(net, x, memory=6000, executor=executor)
        two = empirical_ntk(net, x, other, memory=6000, executor=executor, outputs="trace")
    close(found, empirical_ntk(net, x), 1e-13)
    close(two, empirical_ntk(net, x, other, outputs="trace"), 1e-13)


def test_into_a_tensor_and_a_file(tmp_path):
    net, x, _ = make(NET, N)
    wanted = empirical_ntk(net, x)
    room = torch.full(wanted.shape, torch.nan, dtype=wanted.dtype)
    assert empirical_ntk(net, x, out=room) is room
    assert torch.equal(room, wanted)
    path = tmp_path / "kernel.npy"
    close(empirical_ntk(net, x, out=path, memory=2**20), wanted, 1e-13)
    np.testing.assert_allclose(np.load(path), wanted.numpy(), rtol=0, atol=1e-10)
    with torch.no_grad():
        next(net.parameters()).add_(1.0)
    with pytest.raises(ValueError, match="out"):  # of a network with other parameters
        empirical_ntk(net, x, out=path, memory=2**20)
