"""Monte Carlo dropout against loops in training mode, closed forms and its own draws."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import entr, softmax
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tests.regularization.dropping_models import MODELS, SLOW, Hiding, looped
from vademecum.models import SlowPathWarning
from vademecum.regularization import mc_dropout
from vademecum.regularization.dropout_passes._calls import attend
from vademecum.testing import check_instrument
from vademecum.testing.laws import changes, snapshot

S = 1000


def agree(found, wanted):
    """Mean and standard deviation of two samples, within five standard errors."""
    a, b = (t.double() for t in (found, wanted))
    error = ((a.var(0) + b.var(0)) / len(a)).sqrt()
    assert ((a.mean(0) - b.mean(0)).abs() <= 5 * error + 1e-6).all()
    for t, other in ((a, b), (b, a)):
        t, other = ((v - v.mean(0)).square() for v in (t, other))
        error = ((t.var(0) + other.var(0)) / len(t)).sqrt()
        assert ((t.mean(0) - other.mean(0)).abs() <= 5.5 * error + 1e-6).all()
    assert (a.std(0) > 0).any()


@pytest.mark.parametrize("name", MODELS)
def test_mc_dropout_is_a_loop_in_training_mode(name):
    make, shape = MODELS[name]()
    model, x = make.eval(), torch.randn(shape)
    before = snapshot(model)
    found = mc_dropout(model, x, samples=S)
    assert not list(changes(before, snapshot(model)))
    agree(found.draws, looped(model, x, S))


@pytest.mark.parametrize("name", SLOW)
def test_what_cannot_be_mapped_is_done_one_by_one_and_said(name):
    make, shape = SLOW[name]()
    model, x = make.eval(), torch.randn(shape)
    with pytest.warns(SlowPathWarning, match="passes are made one by one"):
        found = mc_dropout(model, x, samples=S)
    agree(found.draws, looped(model, x, S))


KINDS = {
    nn.Dropout: (2, 3),
    nn.Dropout1d: (2, 3, 4),
    nn.Dropout2d: (2, 3, 2, 4),
    nn.Dropout3d: (2, 3, 2, 2, 2),
    nn.AlphaDropout: (2, 3),
    nn.FeatureAlphaDropout: (2, 3, 4),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inplace", [False, True])
def test_every_kind_gives_the_values_of_torch(kind, inplace):
    x, layer = torch.randn(KINDS[kind], dtype=torch.float64), kind(0.3, inplace=inplace)
    before = x.clone()
    found = mc_dropout(layer, x, samples=60).draws
    assert x.equal(before)
    torchs = torch.stack([layer(x.clone()) for _ in range(60)])
    for mine, theirs in zip(found.flatten(1).T, torchs.flatten(1).T, strict=True):
        torch.testing.assert_close(mine.unique(), theirs.unique())
    if x.ndim > 2:  # all of a channel or nothing
        differ = (found != found[:1]).flatten(3)
        assert (differ.any(3) == differ.all(3)).all()


EMPTY_ROW = torch.ones(3, 5).tril(-1) == 1
ATTENTION: list[dict[str, Any]] = [
    {},
    {"is_causal": True},
    {"attn_mask": EMPTY_ROW},
    {"attn_mask": torch.linspace(-3, 2, 15).double().view(3, 5)},
    {"attn_mask": torch.zeros(3, 5).double().masked_fill(~EMPTY_ROW, -torch.inf)},
    {"scale": 0.7},
    {"enable_gqa": True},
]


@pytest.mark.parametrize("options", ATTENTION)
def test_attention_written_out_is_that_of_torch(options):
    heads = 2 if "enable_gqa" in options else 4
    q, k, v = (torch.randn(2, *s).double() for s in ((4, 3, 8), (heads, 5, 8), (heads, 5, 6)))
    call, value = attend(q, k, v, dropout_p=0.3, **options)
    assert call.p == 0.3
    wanted = F.scaled_dot_product_attention(q, k, v, **options)
    torch.testing.assert_close(call.x @ value, wanted)


def test_one_example_without_an_axis_for_examples():
    found = mc_dropout(nn.Dropout1d(0.5), torch.ones(6, 5), samples=40, link="identity").draws
    assert {tuple(row.tolist()) for row in found.reshape(-1, 5)} == {(0.0,) * 5, (2.0,) * 5}


def test_mean_and_variance_are_those_of_the_law():
    x = torch.tensor([[1.0, -3.0]], dtype=torch.float64)
    found = mc_dropout(nn.Dropout(0.2), x, samples=40_000)
    assert ((found.mean - x).abs() < 5 * found.standard_error).all()
    torch.testing.assert_close(found.variance, x.square() * 0.25, rtol=0.05, atol=0)
    torch.testing.assert_close(found.standard_error, (found.variance / 40_000).sqrt())


def test_other_generators_draw_other_masks():
    """Of two passes over 64 entries no two are equal, unless few seeds are told apart."""
    layer, x, dice = nn.Dropout(0.5), torch.ones(1, 64), torch.Generator()
    found = {
        tuple(mc_dropout(layer, x, samples=2, generator=dice.manual_seed(s)).draws.ravel().tolist())
        for s in range(60)
    }
    assert len(found) == 60


def test_entropy_and_mutual_information_are_those_of_the_draws():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 3)).double()
    x = torch.randn(4, 5, dtype=torch.float64)
    found: Any = mc_dropout(model, x, samples=50)
    p = softmax(found.draws.numpy(), -1)
    own, mean = entr(p).sum(-1), p.mean(0)
    np.testing.assert_allclose(found.probabilities, mean)
    np.testing.assert_allclose(found.entropy, entr(mean).sum(-1))
    np.testing.assert_allclose(found.mutual_information, entr(mean).sum(-1) - own.mean(0))
    surprise = -(p * np.log(mean)).sum(-1)
    np.testing.assert_allclose(found.entropy_error, surprise.std(0, ddof=1) / 50**0.5)
    apart = (surprise - own).std(0, ddof=1) / 50**0.5
    np.testing.assert_allclose(found.mutual_information_error, apart)


def test_links():
    layer, x = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 1)), torch.randn(2, 3)
    plain = mc_dropout(layer, x, samples=5)
    assert plain.entropy is None
    assert plain.probabilities is None
    found = mc_dropout(layer, x, samples=5, link="sigmoid")
    torch.testing.assert_close(found.probabilities, found.draws.sigmoid().mean(0))
    assert found.entropy is not None
    assert found.entropy.shape == (2, 1)
    sure = mc_dropout(nn.Dropout(0.5), torch.tensor([[2000.0, -2000.0]]), samples=20)
    assert sure.entropy is not None
    assert sure.entropy.isfinite().all()


class Counted(TorchDispatchMode):
    """Counts products with a matrix of a given width."""

    def __init__(self, width):
        super().__init__()
        self.width, self.count = width, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.addmm, torch.ops.aten.mm):
            self.count += out.shape[-1] == self.width
        return out


@pytest.mark.parametrize("memory", [None, 4000])
def test_what_precedes_the_first_dropout_is_computed_once(memory):
    model = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 5), nn.Dropout(), nn.Tanh())
    with Counted(7) as calls:
        found = mc_dropout(model, torch.randn(3, 4), samples=64, memory=memory)
    assert calls.count == 1
    assert len(found.draws.unique(dim=0)) > 50


@pytest.mark.usefixtures("unchecked")
def test_memory_is_kept_to_or_refused():
    model = nn.Sequential(nn.Dropout(), nn.Linear(1000, 500), nn.Tanh(), nn.Linear(500, 2))
    x = torch.randn(8, 1000)
    with pytest.raises(ValueError, match=r"memory must be >= \d+ bytes for one pass, got 1000"):
        mc_dropout(model, x, memory=1000)
    with pytest.raises(ValueError, match="memory must be >= 1, got 0"):
        mc_dropout(model, x, memory=0)
    assert mc_dropout(model, x, samples=7, memory=2**19).draws.shape == (7, 8, 2)


def test_batch_normalisation_does_not_move_and_hidden_rates_are_found():
    norm = nn.BatchNorm1d(4)
    model = nn.Sequential(Hiding(p=0.5), nn.Flatten(0, 1), norm).train()
    x = torch.randn(3, 2, 4)
    before = snapshot(model)
    found = mc_dropout(model, x)
    assert not list(changes(before, snapshot(model)))
    assert (found.variance > 0).any()
    assert int(norm.num_batches_tracked or 0) == 0


class HidingAndNormalising(Hiding):
    """Attention that hides its rate, and keeps statistics by itself."""

    mean: Tensor
    var: Tensor
    calls: Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.randn(5))
        self.register_buffer("var", torch.rand(5) + 0.5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.calls += 1
        y = F.batch_norm(x, self.mean, self.var, training=self.training)
        y = F.instance_norm(y, self.mean, self.var, use_input_stats=self.training)
        return super().forward(y)


def test_a_module_that_hides_its_rate_still_normalises_by_its_statistics():
    model, x = HidingAndNormalising().eval(), torch.randn(3, 5, 4)
    plain = Hiding().eval()
    plain.qkv = model.qkv
    y = F.batch_norm(x, model.mean, model.var)
    y = F.batch_norm(y, model.mean, model.var)
    before = snapshot(model)
    found = mc_dropout(model, x, samples=400)
    assert not list(changes(before, snapshot(model)))
    agree(found.draws, looped(plain, y, 400))


class Asking(nn.Module):
    """What vmap cannot map."""

    def forward(self, x):
        return 2 * x if float(x.sum()) >= 0 else x


def test_an_input_that_is_dropped_from_in_place_is_left_alone_one_by_one():
    x = torch.ones(2, 50)
    with pytest.warns(SlowPathWarning, match="passes are made one by one"):
        found = mc_dropout(nn.Sequential(nn.Dropout(inplace=True), Asking()), x, samples=40)
    assert x.equal(torch.ones(2, 50))
    assert abs(float(found.draws.mean()) - 2) < 5 * 2 / 4000**0.5


def test_within_inference_mode():
    with torch.inference_mode():
        found = mc_dropout(nn.Sequential(nn.Linear(3, 4), nn.Dropout()), torch.ones(2, 3))
    assert (found.variance > 0).any()


def test_what_is_dropped_does_not_overflow():
    found = mc_dropout(nn.Dropout(), torch.full((1, 9), 3e38), samples=20).draws
    assert set(found.unique().tolist()) == {0.0, torch.inf}


def test_mc_dropout_keeps_the_laws_of_instruments():
    def instrument(model, x):
        generator = torch.Generator().manual_seed(3)
        return mc_dropout(nn.Sequential(model, nn.Dropout(0.25)), x, samples=4, generator=generator)

    check_instrument(instrument, [], torch.randn(5, 2, 3))


def test_without_dropout_there_is_nothing_to_sample():
    for model in (nn.Linear(2, 2), nn.Dropout(0.0), Hiding(p=0.0)):
        x = torch.ones(1, 3, 4) if isinstance(model, Hiding) else torch.ones(1, 2)
        with pytest.raises(ValueError, match="model must have dropout with a rate above 0"):
            mc_dropout(model, x)
