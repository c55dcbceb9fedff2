"""Signals of networks, against a computation by hand of every column, without hooks."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from vademecum.regularization import SignalMoments, signal_propagation
from vademecum.testing import check_instrument


def by_hand(h: Tensor) -> SignalMoments:
    """The moments by loops over examples and pairs, and the jackknife's kin of their errors."""
    rows = h.double().reshape(len(h), -1)
    n = len(rows)
    q = torch.stack([(row * row).mean() for row in rows])
    m = float(rows.mean())
    variance = (rows - m).square().mean(1)  # up to what is of second order in its error
    pairs = torch.zeros(n, n, dtype=torch.float64)
    for i, j in itertools.permutations(range(n), 2):
        pairs[i, j] = rows[i] @ rows[j] / (rows[i].norm() * rows[j].norm())
    c = pairs.sum(1) / (n - 1)
    errors = [float(v.std() / n**0.5) for v in (q, variance, 2 * c)]
    return SignalMoments(
        float(q.mean()), float((rows - m).square().mean()), float(c.mean()), *errors
    )


def agree(found: SignalMoments | None, h: Tensor, rtol: float = 1e-4) -> None:
    assert found is not None
    for a, b in zip(found, by_hand(h), strict=True):
        assert a is not None
        assert a == pytest.approx(b, rel=rtol, abs=1e-7 * max(1e-9, float(h.abs().max())))


class Small(nn.Module):
    """A network with a shared layer, a sum, and a functional activation."""

    def __init__(self):
        super().__init__()
        self.first, self.twice, self.last = nn.Linear(5, 7), nn.Linear(7, 7), nn.Linear(7, 3)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        a = self.first(x)
        b = torch.tanh(self.twice(a))
        c = a + self.twice(b)
        return self.last(self.act(c))


def signals(model: Small, x: Tensor) -> list[Tensor]:
    """What the network computes, line by line."""
    a = model.first(x)
    b = model.twice(a)
    t = b.tanh()
    c = model.twice(t)
    s = a + c
    r = s.relu()
    return [a, b, t, c, s, r, model.last(r)]


@pytest.fixture
def small():
    torch.manual_seed(1)
    return Small().double(), torch.randn(6, 5, dtype=torch.float64)


def test_signal_propagation_has_each_column_as_computed_by_hand(small):
    model, x = small
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    result = signal_propagation(model, x, y)
    names = [(r.name, r.kind, r.call) for r in result.rows]
    assert names == [
        ("first", "Linear", 0), ("twice", "Linear", 0), ("", "tanh", 0), ("twice", "Linear", 1),
        ("", "add", 0), ("act", "ReLU", 0), ("last", "Linear", 0),
    ]  # fmt: skip
    found = signals(model, x)
    gradients = torch.autograd.grad(F.cross_entropy(found[-1], y), found)
    for row, h, g in zip(result.rows, found, gradients, strict=True):
        assert row.shape == tuple(h.shape)
        agree(row.forward, h.detach())
        agree(row.backward, g)
    assert result.cotangent == "loss"


def test_dead_and_saturated_shares_are_those_of_slopes():
    x = torch.tensor([[-1.0, 2.0, -3.0, 4.0], [-2.0, -2.0, -1.0, 5.0], [-3.0, 1.0, -0.5, 1.0]])
    relu, tanh = (signal_propagation(f, x).rows[0] for f in (nn.ReLU(), nn.Tanh()))
    assert (relu.dead, relu.saturated) == (0.5, 7 / 12)
    # the slope of tanh is 1 / cosh^2, which is below 1/100 beyond 2.9932
    assert tanh.dead == 0
    assert tanh.saturated == pytest.approx(float((x.abs() > 2.9932).double().mean()))
    assert signal_propagation(nn.ReLU(), x[:1]).rows[0].dead is None
    assert signal_propagation(nn.Linear(4, 2), x).rows[0].saturated is None


def test_one_random_vector_goes_back_from_all_examples(small):
    model, x = small
    result = signal_propagation(model, x, generator=torch.Generator().manual_seed(3))
    vector = torch.randn(3, generator=torch.Generator().manual_seed(3)).double()
    found = signals(model, x)
    gradients = torch.autograd.grad(found[-1], found, vector.expand(6, 3))
    for row, g in zip(result.rows, gradients, strict=True):
        agree(row.backward, g)
    assert result.cotangent == "random"
    last = result.rows[-1].backward
    assert last is not None
    assert last.correlation == pytest.approx(1)


def test_portions_and_loaders_give_what_all_at_once_gives(small):
    model, x = small
    x, y = torch.cat([x, 2 * x.flip(1)]), torch.arange(12) % 3
    whole = signal_propagation(model, x, y)
    loader = DataLoader(TensorDataset(x, y), batch_size=5)
    for other in (
        signal_propagation(model, x, y, memory=6000),
        signal_propagation(model, loader),
    ):
        for a, b in zip(whole.rows, other.rows, strict=True):
            assert (a.name, a.kind, a.call, a.dead) == (b.name, b.kind, b.call, b.dead)
            assert a.backward is not None
            assert b.backward is not None
            for one, two in ((a.forward, b.forward), (a.backward, b.backward)):
                assert one.second_moment == pytest.approx(two.second_moment)
                assert one.variance == pytest.approx(two.variance)
                assert one.second_moment_error == pytest.approx(two.second_moment_error)
    with pytest.raises(ValueError, match="memory must be >= "):
        signal_propagation(model, x, y, memory=10)


@pytest.mark.parametrize("size", [5, 1])
def test_an_example_alone_in_its_batch_has_no_correlation(size):
    """Eleven examples in batches of 5, 5 and 1: pairs are those of the first two."""
    x = torch.randn(11, 4, generator=seeded(), dtype=torch.float64)
    layer = nn.Linear(4, 3).double()
    (row,) = signal_propagation(layer, DataLoader(TensorDataset(x), batch_size=size)).rows
    assert row.predicted is not None
    assert row.forward.second_moment == pytest.approx(float(layer(x).detach().square().mean()))
    if size == 1:
        assert row.forward.correlation is None
        assert row.predicted.correlation is None
        return
    pairs = list(itertools.permutations(range(5), 2))
    pairs += [(5 + i, 5 + j) for i, j in pairs]
    h = layer(x).detach()
    cosines = [float(F.cosine_similarity(h[i], h[j], dim=0)) for i, j in pairs]
    assert row.forward.correlation == pytest.approx(sum(cosines) / 40)
    v, b = (float(p.detach().square().mean()) for p in (layer.weight, layer.bias))
    cross = 0.0  # of each batch, the mean cosine times its second moment
    for some in (x[:5], x[5:10]):
        c = sum(float(F.cosine_similarity(some[i], some[j], dim=0)) for i, j in pairs[:20]) / 20
        cross += c * float(some.square().mean()) / 2
    wanted = (4 * v * cross + b) / (4 * v * float(x.square().mean()) + b)
    assert row.predicted.correlation == pytest.approx(wanted)


def test_correlations_of_equal_examples_are_one_and_never_more():
    for seed in range(12):
        row = torch.randn(300, generator=torch.Generator().manual_seed(seed))
        found = signal_propagation(nn.Identity(), row.expand(7, 300)).rows[0].forward.correlation
        assert found is not None
        assert 1 - 1e-5 < found <= 1


def test_a_summed_loss_is_one_in_portions_too(small):
    model, x = small

    def total(z: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(z, y, reduction="sum")

    y = torch.zeros(6, 3, dtype=torch.float64)
    one, other = (signal_propagation(model, x, y, loss=total, memory=m) for m in (None, 3000))
    for a, b in zip(one.rows, other.rows, strict=True):
        assert a.backward is not None
        assert b.backward is not None
        assert a.backward.second_moment == pytest.approx(b.backward.second_moment)


def test_sizes_beyond_single_precision_are_measured():
    layer = nn.Linear(3, 3, bias=False)
    nn.init.eye_(layer.weight)
    for size in (1e-30, 1e25):
        found = signal_propagation(layer, size * torch.tensor([[1.0, 2.0, 2.0], [2.0, 1.0, -2.0]]))
        assert found.rows[0].forward.second_moment == pytest.approx(3 * size**2, rel=1e-5)
        assert found.rows[0].forward.correlation == pytest.approx(0, abs=1e-6)


def test_an_example_of_zeros_is_in_no_pair():
    layer = nn.Linear(2, 2, bias=False)
    nn.init.eye_(layer.weight)
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0], [4.0, 3.0]])
    (row,) = signal_propagation(layer, x).rows
    assert row.forward[:3] == pytest.approx((25 / 3, 25 / 3 - (7 / 3) ** 2, 24 / 25))


def test_frozen_weights_tokens_and_attributes_have_gradients_nevertheless():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
            return {"scores": self.head(self.embed(input_ids).mean(1))}

    model = Reader().requires_grad_(False)
    result = signal_propagation(
        model, {"input_ids": torch.arange(12).view(4, 3) % 9}, output="scores"
    )
    assert [r.kind for r in result.rows] == ["Embedding", "Linear"]
    assert all(r.backward is not None and r.backward.second_moment > 0 for r in result.rows)
    assert result.rows[0].note == "no prediction: Embedding"
    assert result.rows[1].predicted is not None


def test_draws_are_of_a_copy_and_name_what_they_keep():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(4))
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) * self.gain

    model, x = Scaled(), torch.randn(3, 4)
    before = copy.deepcopy(model.state_dict())
    result = signal_propagation(model, x, draws=5, generator=torch.Generator().manual_seed(0))
    assert (result.draws, result.kept) == (5, ("gain",))
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    error = result.rows[0].forward.second_moment_error
    assert error is not None
    assert error > 0
    lines = result.table().splitlines()
    assert lines[-2:] == ["mean of 5 draws of parameters, on a copy", "not drawn afresh: gain"]


def test_models_are_left_as_they_were():
    data = torch.randn(5, 6, generator=torch.Generator().manual_seed(0)), torch.arange(5) % 3
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 3))
    check_instrument(lambda m, d: signal_propagation(m, *d), model, data)
    check_instrument(lambda m, d: signal_propagation(m, d[0], draws=2), model, data, outputs=None)
    with torch.no_grad():
        assert signal_propagation(model, data[0]).rows[0].backward is not None


def test_weights_that_are_computed_are_no_signals():
    layer: Any = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    (row,) = signal_propagation(layer, x).rows
    agree(row.forward, layer(x).detach())
    v, b = (t.detach().square().mean() for t in (layer.weight, layer.bias))
    assert row.predicted is not None
    assert row.predicted.second_moment == pytest.approx(float(4 * v * x.square().mean() + b))


def test_what_a_model_changes_in_place_was_measured_before():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)).double()
    plain = copy.deepcopy(model)
    plain[1] = nn.ReLU()
    x = torch.randn(5, 4, dtype=torch.float64)
    one, other = (signal_propagation(m, x, generator=seeded()) for m in (model, plain))
    assert one == other


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


BAD: list[tuple[dict, str]] = [
    ({"loss": F.mse_loss}, "y must be given where there is a loss, got None"),
    ({"draws": -1}, "draws must be >= 0, got -1"),
    ({"draws": 1.5}, "draws must be an integer, got 1.5"),
    ({"memory": 0}, "memory must be >= 1, got 0"),
    ({"x": torch.tensor([[1.0, torch.nan]])}, "x must be finite, got nan"),
    ({"x": torch.zeros(0, 2)}, "x must not be empty"),
    ({"x": {"flag": True}}, "x must hold a tensor with examples along its first axis"),
    ({"model": 3}, "model must be an nn.Module, got int"),
    ({"y": torch.zeros(3, 5)}, "y must be shaped like the output"),
    ({"y": torch.zeros(2, 2), "loss": lambda z, y: z - y}, "loss must give one number"),
    ({"model": nn.LSTM(2, 2)}, "model must give a tensor, got tuple"),
]


@pytest.mark.parametrize(("given", "message"), BAD)
def test_bad_input_is_named(given, message, unchecked):
    given = {"model": nn.Linear(2, 2), "x": torch.ones(2, 2), **given}
    model, x = given.pop("model"), given.pop("x")
    with pytest.raises(ValueError, match=message):
        signal_propagation(model, x, given.pop("y", None), **given)
