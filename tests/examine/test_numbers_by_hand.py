"""Numbers of sections against a few lines of torch and NumPy."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vademecum.examine import examine
from vademecum.regularization import suggest_init


@pytest.fixture
def given():
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(40, 3, generator=draw, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 11), nn.ReLU(), nn.Linear(11, 3))
    for p in model.parameters():
        p.data = torch.randn(p.shape, generator=draw) / 2
    model = model.double()
    model[0].bias.data[0] = -100.0  # pyright: ignore
    return model, x, torch.arange(40) % 3


def measured(name: str, model: nn.Module, x: Any, y: Any, **options: Any) -> Any:
    draw = torch.Generator().manual_seed(0)
    given: Any = {"sections": [name], "budget": math.inf, "generator": draw} | options
    section = examine(model, x, y, **given)[name]
    assert not section.traceback, section.traceback
    return section


def test_signals(given):
    model, x, y = given
    section = measured("signal", model, x, y)
    with torch.no_grad():
        first, second, z = model[0](x), model[:3](x), model(x)
    off = int((first <= 0).sum() + (second <= 0).sum())
    assert section.saturated_share == pytest.approx(off / (40 * 17))
    dead = int((first <= 0).all(0).sum() + (second <= 0).all(0).sum())
    assert dead >= 1
    assert section.dead_share == pytest.approx(dead / 17)
    assert section.last_second_moment == pytest.approx(float(z.square().mean()))
    assert section["last_second_moment"].error == pytest.approx(
        float(z.square().mean(1).std()) / math.sqrt(40)
    )
    cosines = F.normalize(z, dim=1) @ F.normalize(z, dim=1).T
    pairs = cosines[~torch.eye(40, dtype=torch.bool)]
    assert section.last_correlation == pytest.approx(float(pairs.mean()), abs=0.05)
    steps = suggest_init(model, x[order(40)[:16]]).steps
    known = [s for s in steps if s.proposed and s.present]
    factors = [max(s.proposed / s.present, s.present / s.proposed) for s in known]
    assert section.init_factor == pytest.approx(max(factors))


def test_gradients_of_signals(given):
    model, x, y = given
    section = measured("signal", model, x, y)
    kept: list[Any] = []
    h = x
    for layer in model:
        h = layer(h)
        if isinstance(layer, nn.Linear):
            h.retain_grad()
            kept.append(h)
    F.cross_entropy(h, y).backward()
    squares = [g.grad.square().sum(1) for g in (kept[0], kept[-1])]
    index = 0.5 * float(torch.log10(squares[0].mean() / squares[1].mean()))
    assert section.vanishing_index == pytest.approx(index)
    relative = [float(s.std() / s.mean()) / math.sqrt(40) for s in squares]
    error = math.hypot(*relative) / math.log(10) / 2
    assert section["vanishing_index"].error == pytest.approx(error)


def test_steps_of_curvature(given):
    model, x, y = given
    section = measured("curvature", model, x, y)
    loss = F.cross_entropy(model(x), y)
    slopes = torch.autograd.grad(loss, list(model.parameters()))
    step = section.break_even_step
    moved = {k: p - step * g for (k, p), g in zip(model.named_parameters(), slopes, strict=True)}
    with torch.no_grad():
        after = F.cross_entropy(torch.func.functional_call(model, moved, (x,)), y)
    loss = loss.detach()
    assert section.loss == pytest.approx(float(loss))
    fall = step * sum(float(g.square().sum()) for g in slopes)
    assert abs(float(after - loss)) < 0.02 * fall  # as far as a step that is off by 0.1 % can be
    top, rate = section["largest_eigenvalue"], section["critical_learning_rate"]
    slope = (2 / (top.value - 1e-3) - 2 / (top.value + 1e-3)) / 2e-3
    assert rate.error / top.error == pytest.approx(slope, rel=1e-3)


def test_spectrum_of_the_kernel(given):
    model, x, y = given
    section = measured("kernel", model, x, y)
    rows = []
    for z in model(x).flatten():
        slopes = torch.autograd.grad(z, list(model.parameters()), retain_graph=True)
        rows.append(torch.cat([g.flatten() for g in slopes]))
    values = torch.linalg.svdvals(torch.stack(rows)).square()
    rank = int(torch.linalg.matrix_rank(torch.stack(rows)))
    assert section.rank == rank
    assert section.effective_rank == pytest.approx(float(values.sum() / values[0]))
    assert section.condition == pytest.approx(float(values[0] / values[rank - 1]), rel=1e-5)
    assert section.median_steps == pytest.approx(float(values[0] / values[rank // 2]))
    gram = torch.stack(rows) @ torch.stack(rows).T
    K = torch.einsum("iaja->ij", gram.reshape(40, 3, 40, 3))
    hot, centre = F.one_hot(y, 3).double(), torch.eye(40).double() - 1 / 40
    both = [(centre @ m @ centre).flatten() for m in (K, hot @ hot.T)]
    assert section.alignment == pytest.approx(float(F.cosine_similarity(*both, dim=0)))


def test_margins_and_gaps(given):
    model, x, y = given
    z = model(x).detach()
    others = z.scatter(1, y[:, None], -math.inf).amax(1)
    margins = (z.gather(1, y[:, None])[:, 0] - others).numpy()
    section = measured("generalisation", model, x, y)
    assert section.tenth_margin == pytest.approx(np.quantile(margins, 0.1))
    assert section.median_margin == pytest.approx(np.sort(margins)[19])
    wanted = torch.randn(40, 3).double()
    fresh = x[:25] + 1, 2 * wanted[:25]
    section = measured("generalisation", model, x, wanted, test=fresh)
    seen = (model(x) - wanted).square().mean(1).detach().numpy()
    new = (model(fresh[0]) - fresh[1]).square().mean(1).detach().numpy()
    assert section.gap == pytest.approx(new.mean() - seen.mean())
    error = math.sqrt(new.var(ddof=1) / 25 + seen.var(ddof=1) / 40)
    assert section["gap"].error == pytest.approx(error)


def test_positions_that_count_for_nothing():
    """A sequence is wrong in its share of those that count; one without any is left out."""
    z = torch.eye(3)[torch.tensor([[0, 1, 2, 0], [1, 1, 1, 1], [2, 0, 1, 2]])]
    y = torch.tensor([[0, 2, -100, -100], [-100] * 4, [2, 0, 0, -100]])
    section = measured("generalisation", nn.Identity(), z, y)
    assert section["train_error"].each == pytest.approx((1 / 2, 1 / 3))
    assert section["train_error"].n == 2


def test_densities_and_mirror_images():
    x = torch.randn(30, 2, dtype=torch.float64)
    law = torch.distributions.Normal(0.0, 2.0)
    model = nn.Sequential(Density(law))
    section = measured("generalisation", model, x, None, task="density")
    assert section.train_loss == pytest.approx(float(-law.log_prob(x).sum(1).mean()))
    images = torch.rand(5, 1, 4, 4, dtype=torch.float64)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)).double()
    section = measured("geometry", model, images, torch.arange(5) % 3)
    with torch.no_grad():
        z, mirrored = model(images), model(images.flip(3))
    longer = torch.maximum(z.norm(dim=1), mirrored.norm(dim=1))
    each = (mirrored - z).norm(dim=1) / longer
    assert section.flip_error == pytest.approx(float(each.mean()), rel=1e-6)
    assert section["flip_error"].error == pytest.approx(float(each.std()) / math.sqrt(5), rel=1e-6)


class Density(nn.Module):
    def __init__(self, law: torch.distributions.Normal):
        super().__init__()
        self.law = law

    def forward(self, x):
        return self.law.log_prob(x).sum(1)


def test_brier_and_errors_of_means(given):
    model, x, y = given
    section = measured("calibration", model, x, y)
    p = model(x).softmax(1).detach()
    each = (p - F.one_hot(y, 3)).square().sum(1)
    assert section.brier == pytest.approx(float(each.mean()))
    assert section["brier"].error == pytest.approx(float(each.std()) / math.sqrt(40))
    sure, right = p.amax(1), (p.argmax(1) == y).double()
    assert section.overconfidence == pytest.approx(float((sure - right).mean()))


def test_ranks_and_selectivity(given):
    model, x, _ = given
    model[-1].weight.data[1:] = 0  # of which the last layer tells less than the first
    section = measured("representations", model, x, x.argmax(1))
    best = section.layers.index(section.best_layer)
    assert best == 0
    last = section.probe_scores[-1] - section.control_scores[-1]
    assert abs(section.selectivity - last) > 0.1
    assert section.selectivity == pytest.approx(
        section.probe_scores[best] - section.control_scores[best]
    )
    assert section.lost_by_the_end == pytest.approx(section.best_score - section.last_score)

    def rank(h: np.ndarray) -> float:
        values = np.linalg.eigvalsh(np.cov(h.T))
        p = values[values > 0] / values[values > 0].sum()
        return math.exp(-(p * np.log(p)).sum())

    model[-1].weight.data[1:] = torch.randn(2, 11, generator=torch.Generator().manual_seed(0))
    section = measured("representations", model, x, x.argmax(1))
    z = model(x).detach().numpy()[np.array(order(40))]
    assert section.last_effective_rank == pytest.approx(rank(z), rel=1e-6)
    kept = np.array([rank(np.delete(z, [2 * i, 2 * i + 1], 0)) for i in range(20)])
    jackknife = math.sqrt(19 / 20 * ((kept - kept.mean()) ** 2).sum())
    assert section["last_effective_rank"].error == pytest.approx(jackknife, rel=1e-6)


def order(n: int) -> list[int]:
    """The order of examples that this seed gives."""
    from vademecum.examine._study import Study
    from vademecum.examine.examining import seed_from

    seed = seed_from(torch.Generator().manual_seed(0))
    return Study(nn.Identity(), torch.eye(n), seed=seed).order.tolist()


def test_the_curve_has_what_is_told_of_it(given):
    model, x, y = given
    section = measured("robustness", model, x, y)
    assert section.curve_accuracy[0] == section.clean_accuracy
    assert section.clean_accuracy == pytest.approx(float((model(x).argmax(1) == y).double().mean()))
    place = section.curve_radii.index(pytest.approx(section.radius))
    assert section.curve_accuracy[place] == section.accuracy
    assert section.radius == pytest.approx(8 / 255 * 4 * float(x.std()))


def test_bytes_of_mixed_tensors():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).half()
    section = measured("anatomy", model, torch.randn(6, 4).half(), None)
    assert section.model_bytes == 2 * (12 + 3 + 3 + 3 + 3 + 3) + 8  # and one whole number of 64 bit
    assert section.buffers == 7


def test_directions_below_rounding_are_never_learned():
    """In single precision an eigenvalue of 1e-8 of the largest is none, and no slow one."""
    from vademecum.examine._study import Study
    from vademecum.examine.sections.kernel import _Spectrum, _times

    x, y = torch.eye(2), torch.tensor([[1.0], [1.0]])
    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    for small, steps in ((1e-8, math.inf), (1e-4, pytest.approx(math.log(50) / 2e-4, rel=1e-3))):
        K = torch.tensor([[1.0, 0.0], [0.0, small]])[:, :, None, None]
        items: Any = _times(Study(model, x, y), _Spectrum(K), x, y)
        found = {m.name: m.value for m in items}
        assert found["steps_to_a_tenth"] == steps
        assert found["unlearnable_share"] == (0.5 if small < 1e-7 else 0.0)
