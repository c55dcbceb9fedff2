"""Votes under noise: exact probabilities, the counterexample to floating noise, refusals."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from vademecum.models import peak_bytes
from vademecum.robustness import randomized_smoothing
from vademecum.robustness._logits import Classifier
from vademecum.robustness.smoothing import _ballots
from vademecum.robustness.smoothing._ballots import Votes
from vademecum.robustness.smoothing._grid import Grid
from vademecum.robustness.smoothing._noisy import GridNoise
from vademecum.robustness.smoothing._rounded_normal import RoundedNormal
from vademecum.testing import check_instrument


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Rule(nn.Module):
    """The class that a function gives to each input, as logits."""

    def __init__(self, rule, k: int = 2):
        super().__init__()
        self.rule, self.k = rule, k

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.one_hot(self.rule(x), self.k).to(x.dtype)


def trace(a: float) -> Rule:
    """Class 0 where a number can be a sum fl(a + z), by its last digits."""
    mark = torch.tensor(a, dtype=torch.float32)
    return Rule(lambda x: (((x - mark) + mark) != x)[:, 0].long())


def test_floating_noise_certifies_what_is_false():
    """Voráček and Hein: radius 1.26 at 210/255, and another class at the distance 0.8."""
    x = torch.tensor([[210 / 255], [6 / 255]], dtype=torch.float32)
    found = randomized_smoothing(trace(210 / 255), x, sigma=0.33, quantum=None, generator=source())
    assert not found.sound
    assert found.prediction.tolist() == [0, 1]
    assert float(found.radius[0]) == pytest.approx(1.26, abs=0.005)
    assert float(x[0] - x[1]) == pytest.approx(0.8)


def test_noise_on_the_grid_does_not():
    """The exact vote of all grid points within the certified radius is the certified class."""
    x = torch.tensor([[210 / 255]], dtype=torch.float32)
    model, sigma = trace(210 / 255), 0.33
    found = randomized_smoothing(model, x, sigma=sigma, generator=source())
    assert found.sound
    reach = 1000
    numbers = np.arange(-reach, 256 + reach)
    values = torch.tensor(numbers.astype(np.float32) / np.float32(255))[:, None]
    classes = model(values).argmax(1).numpy()
    mass = np.diff(stats.norm.cdf((np.arange(-reach, reach + 2) - 0.5) / (255 * sigma)))
    share = np.array([mass @ (classes[k : k + 2 * reach + 1] == 0) for k in range(256)])
    wanted = share[210] if found.prediction[0] == 0 else 1 - share[210]
    assert float(found.p_lower) <= wanted <= float(found.p_lower) + 0.01
    near = np.abs(np.arange(256) - 210) / 255 < float(found.radius)
    assert (((share > 0.5) == (found.prediction[0] == 0).item())[near]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("quantum", [0.25, 1 / 3, 2.5])
def test_limits_are_those_of_the_exact_probability(dtype, quantum):
    """A threshold on one of two numbers, for which the law is a sum."""
    sigma, n, alpha = 2 * quantum, 3000, 1e-7
    k = torch.tensor([[0, 3], [1, 0], [2, -4], [-3, 1]])
    x = Grid(quantum, dtype).value(k.double())
    model = Rule(lambda x: (x[:, 0] > 0.4 * quantum).long())
    found = randomized_smoothing(
        model, x, sigma=sigma, n=n, alpha=alpha, quantum=quantum, generator=source()
    )
    high = stats.norm.sf((0.5 - k[:, 0].numpy()) / 2)  # K + k >= 1
    p = np.maximum(high, 1 - high)
    sure = p > 0.6
    assert found.prediction.tolist() == [int(h > 0.5) for h in high]
    count = [stats.binom.ppf(q, n, p) for q in (1e-7, 1 - 1e-7)]
    low, most = (stats.beta.ppf(alpha, c, n - c + 1) for c in count)
    assert (found.p_lower.numpy() <= most + 1e-9)[sure].all()
    assert (found.p_lower.numpy() >= low - 1e-9)[sure].all()
    assert (found.p_lower.numpy() <= p).all()
    radius = sigma * stats.norm.ppf(found.p_lower.numpy())
    np.testing.assert_allclose(found.radius, radius, rtol=1e-8)
    assert (found.radius.numpy() <= radius).all()


def test_a_constant_classifier_has_the_largest_radius_there_is():
    """All n votes agree: the limit is alpha to the power 1/n, less the sampler's share."""
    model, x = Rule(lambda x: torch.ones(len(x), dtype=torch.long)), torch.zeros(1, 1000)
    n, d, alpha = 500, 1000, 0.01
    found = randomized_smoothing(model, x, sigma=1.0, n=n, alpha=alpha)
    assert float(found.p_lower) == pytest.approx(alpha ** (1 / n), rel=1e-9)
    assert float(found.radius) == pytest.approx(stats.norm.ppf(alpha ** (1 / n)), rel=1e-8)
    spent = n * d * RoundedNormal(255.0).total_variation
    found = randomized_smoothing(model, x, sigma=1.0, n=n, alpha=1.5 * spent)
    assert float(found.p_lower) == pytest.approx((spent / 2) ** (1 / n), rel=1e-6)
    with pytest.raises(ValueError, match=r"alpha must be above .* for n = 500 draws of 1000 num"):
        randomized_smoothing(model, x, sigma=1.0, n=n, alpha=0.9 * spent)


def test_too_close_a_vote_is_none():
    """The parity of the first number is a fair coin."""
    model = Rule(lambda x: (255 * x[:, 0]).round().long() % 2)
    found = randomized_smoothing(model, torch.zeros(2, 1), sigma=0.5, n=500, generator=source())
    assert found.abstained.all()
    assert found.prediction.tolist() == [-1, -1]
    assert found.radius.tolist() == [0.0, 0.0]
    assert ((found.p_lower > 0.3) & (found.p_lower <= 0.5)).all()


def test_the_class_is_chosen_from_other_draws():
    """Each copy is seen once: n0 of them first, then n."""
    seen: list[Tensor] = []

    def note(x: Tensor) -> Tensor:
        seen.append(x.clone())
        return (x[:, 0] > 0).long()

    x = torch.full((1, 6), 0.2)
    randomized_smoothing(Rule(note), x, sigma=0.5, n=300, n0=50, generator=source())
    copies = torch.cat([part for part in seen if len(part) > 1])
    assert len(copies) == 350
    assert len(copies.unique(dim=0)) == 350
    assert [len(part) for part in seen if len(part) > 1] == [50, 300]


def net(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)
    return nn.Sequential(*layers).to(dtype)


def images(n: int) -> Tensor:
    return torch.randint(256, (n, 1, 8, 8), generator=source(5)) / 255


def test_all_blocks_of_draws_choose_the_class(monkeypatch):
    """Large inputs come in blocks of 32 copies: every one counts, not only the last."""
    monkeypatch.setattr(_ballots, "_DRAWS", {"cpu": 1})
    x = torch.linspace(-0.5, 0.5, 41)[:, None].mul(20).round().div(20)
    noisy, model = GridNoise(x, 1.0, 0.05), Rule(lambda x: (x[:, 0] > 0).long())
    found = Votes(Classifier(model), noisy, None, source(3)).count(100, lambda rows: None)
    again = source(3)
    noise = torch.cat([noisy.draw(rows, again) for rows in (32, 32, 32, 4)])
    wins = torch.stack([(noisy.copies(i, noise)[:, 0] > 0).sum() for i in range(len(x))])
    assert bool(((wins != 50) & (wins > 30) & (wins < 70)).any())
    assert torch.equal(found, (wins > 50).long())


def test_grids_that_a_dtype_can_hold():
    """In single precision 2**21 quarters of a unit in the last place are one step."""
    k = torch.tensor([[2.0**21 - 10]])
    assert Grid(1.0, torch.float32).whole(k, 10).item() == k.item()
    for x, reach in ((k, 11), (k + 10, 1)):
        with pytest.raises(ValueError, match=r"quantum must be so coarse that torch.float32"):
            Grid(1.0, torch.float32).whole(x, reach)


def test_company_and_memory_change_nothing():
    model, x = net(), images(4)
    run = partial(randomized_smoothing, model, sigma=0.2, n=700, n0=70)
    every = run(x, generator=source())
    for i in range(4):
        alone = run(x[i : i + 1], generator=source())
        for field in ("prediction", "radius", "abstained", "p_lower"):
            assert getattr(alone, field)[0] == getattr(every, field)[i], field
    again = run(x, generator=source(), memory=3_000_000)
    assert again.p_lower.equal(every.p_lower)
    less = run(x, generator=source(), memory=100_000)
    torch.testing.assert_close(less.p_lower, every.p_lower, rtol=0, atol=0.15)
    assert not run(x, generator=source(9)).p_lower.equal(every.p_lower)


@pytest.mark.parametrize(("width", "memory"), [(2, 40_000), (2, 300_000), (60, 200_000)])
def test_memory_is_kept_to(width, memory):
    """Beside the tables of the noise; with little in a network, and with much."""
    layers = nn.Flatten(), nn.Linear(64, 64 * width), nn.ReLU(), nn.Linear(64 * width, 3)
    model, x = nn.Sequential(*layers), images(2)
    run = partial(randomized_smoothing, model, x, sigma=0.2, n=400, generator=source())
    place = torch.float32, torch.device("cpu")
    tables = peak_bytes(lambda: RoundedNormal(51.0).to(*place))
    assert peak_bytes(partial(run, memory=memory)) <= memory + tables
    assert peak_bytes(run) > memory + tables
    with pytest.raises(ValueError, match=r"memory must be >= \d+ bytes for one noisy copy, got 99"):
        run(memory=99)


def test_the_laws_of_instruments():
    x = torch.randint(256, (5, 2, 3), generator=source()) / 255

    def instrument(model: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
        return randomized_smoothing(model, x, sigma=0.3, n=200, n0=20)[:-1]  # all but `sound`

    check_instrument(instrument, nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), x, per_example=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pixels_stand_for_themselves(dtype):
    grid, k = Grid(1 / 255, dtype), torch.arange(256)
    pixels = k.to(dtype) / 255
    whole = grid.whole(pixels, 500)
    assert whole.long().equal(k)
    assert grid.value(whole).equal(pixels)
    assert grid.value(torch.tensor([-300.0, 700.0])).double().tolist() == pytest.approx(
        [-300 / 255, 700 / 255]
    )
    products = k.to(dtype) * torch.tensor(1 / 255, dtype=dtype)  # off by a rounding
    assert grid.whole(products, 500).long().equal(k)


def test_ten_roundings_off_the_grid_are_too_many():
    x = torch.tensor([[0.2, 0.4]])
    for steps, fine in ((1, True), (10, False)):
        for _ in range(steps):
            x = torch.nextafter(x, torch.ones_like(x))
        if fine:
            assert Grid(1 / 255, torch.float32).whole(x, 9).tolist() == [[51, 102]]
        else:
            with pytest.raises(ValueError, match="x must lie on the grid"):
                Grid(1 / 255, torch.float32).whole(x, 9)


def test_a_grid_without_a_whole_reciprocal():
    grid = Grid(0.7, torch.float64)
    k = torch.tensor([-3.0, 0.0, 5.0], dtype=torch.float64)
    assert grid.value(k.clone()).tolist() == [-3 * 0.7, 0.0, 5 * 0.7]
    assert grid.whole(grid.value(k.clone()), 9).equal(k)


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(torch.cat([x, -x], 1), training=True)


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, torch.where(x > 0.5, math.nan, x)], 1)


GOOD = torch.tensor([[0.2], [0.4]])
REFUSED = [
    ({"sigma": 0.0}, "sigma must be > 0, got 0.0"),
    ({"sigma": math.nan}, "sigma must be > 0, got nan"),
    ({"n": 0}, "n must be >= 1, got 0"),
    ({"n0": 0}, "n0 must be >= 1, got 0"),
    ({"alpha": 1.0}, "alpha must be < 1, got 1.0"),
    ({"alpha": -0.1}, "alpha must be > 0, got -0.1"),
    ({"quantum": 0.0}, "quantum must be > 0, got 0.0"),
    ({"quantum": 1e-5}, r"sigma / quantum must be > 0 and <= 4096, got"),
    ({"quantum": 0.03}, r"x must lie on the grid of multiples of quantum = 0.03, got 0.2.* at \(0"),
    ({"memory": 0}, "memory must be >= 1, got 0"),
    ({"x": torch.tensor([[1, 2]])}, "x must be floating point, got torch.int64"),
    ({"x": torch.tensor([0.2])}, r"x must hold real examples along its first axis, got shape \(1,"),
    ({"x": torch.tensor([[math.nan]])}, r"x must be finite, got nan at \(0, 0\)"),
    ({"x": torch.zeros(0, 3)}, "x must not be empty"),
    ({"x": torch.tensor([[2e7]]), "quantum": 1.0}, "quantum must be so coarse that torch.float32"),
    ({"x": GOOD.bfloat16()}, "quantum must be so coarse that torch.bfloat16 can tell multiples"),
    ({"model": nn.Linear(1, 1)}, r"k >= 2 classes, got shape \(2, 1\)"),
    ({"model": nn.BatchNorm1d(1, track_running_stats=False)}, "has no running statistics"),
    ({"model": Noisy()}, "model must treat examples independently .* chance"),
    ({"model": Broken()}, "logits of model must not be NaN, got some under noise"),
    ({"model": "no"}, "model must be an nn.Module, got str"),
]


@pytest.mark.parametrize(("wrong", "message"), REFUSED)
@pytest.mark.usefixtures("unchecked")
def test_refusals(wrong, message):
    knobs = {"sigma": 0.5, "n": 50, "model": nn.Linear(1, 2), "x": GOOD} | wrong
    model, x = knobs.pop("model"), knobs.pop("x")
    with pytest.raises(ValueError, match=message):
        randomized_smoothing(model, x, **knobs)


@pytest.mark.gpu
def test_on_a_gpu():
    model, x = net(torch.float64), (255 * images(3).double()).round() / 255
    here = randomized_smoothing(model, x, sigma=0.2, n=3000, alpha=1e-6)
    there = randomized_smoothing(model.cuda(), x.cuda(), sigma=0.2, n=3000, alpha=1e-6)
    assert there.radius.is_cuda
    assert there.prediction.tolist() == here.prediction.tolist()
    torch.testing.assert_close(there.p_lower.cpu(), here.p_lower, rtol=0, atol=0.08)
