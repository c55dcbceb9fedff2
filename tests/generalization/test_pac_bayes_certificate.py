"""The certificate: its equations, what the reference code gets wrong, and what it refuses."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from vademecum.generalization import (
    StochasticNetwork,
    draw_certificate,
    kl_inverse,
    pac_bayes_bound,
    pac_bayes_certificate,
)
from vademecum.models import Entangled, mlp
from vademecum.testing.laws import changes, snapshot

KINDS = ("kl", "quadratic", "mcallester", "catoni")


def fixed(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


X = torch.randn(90, 3, generator=fixed())
Y = (X[:, 0] > 0.2).long() + (X[:, 1] > 1).long()
QUICK: dict[str, Any] = {"prior_epochs": 3, "posterior_epochs": 2, "batch_size": 20, "passes": 2,
                         "prior_lr": 0.05}  # fmt: skip


@pytest.mark.parametrize("prior", ["half", "init", "module"])
def test_pac_bayes_certificate_is_what_its_parts_make(prior):
    torch.manual_seed(0)
    model, start = mlp([3, 6, 3]), mlp([3, 6, 3])
    given = start if prior == "module" else prior
    before = snapshot(model)
    found = pac_bayes_certificate(model, X, Y, prior=given, generator=fixed(), **QUICK)
    assert not list(changes(before, snapshot(model)))
    n = len(found.bound_index)
    assert n == (45 if prior == "half" else 90)
    assert sorted([*found.prior_index.tolist(), *found.bound_index.tolist()]) == list(range(90))
    assert found.draws == 2 * n
    assert found.prior_std in found.prior_scales
    assert len(found.prior_scales) == 33
    net = found.network
    means = torch.cat([p.detach().flatten().double() for p in net.model.parameters()])
    starts = torch.cat([t.flatten().double() for k, t in net.named_buffers() if "mean" in k])
    if prior == "module":
        own = torch.cat([p.detach().flatten().double() for p in start.parameters()])
        assert starts.equal(own)
    v = torch.cat([t.detach().flatten().double() for t in net.log_variance]).exp()
    lam = found.prior_std**2
    kl = ((v + (means - starts) ** 2) / lam - 1 - (v / lam).log()).sum().item() / 2
    assert found.kl == pytest.approx(kl, rel=1e-9, abs=1e-9)
    for risks in (found.zero_one, found.cross_entropy):
        upper = kl_inverse(risks.risk, math.log(1 / 0.01) / (2 * n), side="upper")
        assert risks.risk_upper == upper
        for kind in KINDS:
            wanted = pac_bayes_bound(upper, found.kl, n, delta=0.025 / 33, kind=kind)
            assert getattr(risks, kind) == wanted
    assert 0 < found.cross_entropy.risk < found.zero_one.risk_upper < 1
    again = pac_bayes_certificate(model, X, Y, prior=given, generator=fixed(), **QUICK)
    assert again.zero_one == found.zero_one


def test_pac_bayes_certificate_learns_on_both_halves():
    torch.manual_seed(0)
    model = mlp([3, 16, 3])
    many = torch.randn(1500, 3, generator=fixed(3))
    y = (many[:, 0] > 0.2).long() + (many[:, 1] > 1).long()
    knobs: dict[str, Any] = {**QUICK, "prior_lr": 0.01, "batch_size": 50}
    still: dict[str, Any] = {**knobs, "prior_epochs": 0, "posterior_epochs": 0}
    long: dict[str, Any] = {**knobs, "posterior_epochs": 30}
    prior_alone = pac_bayes_certificate(model, many, y, generator=fixed(), **still)
    half = pac_bayes_certificate(model, many, y, generator=fixed(), **knobs)
    init = pac_bayes_certificate(model, many, y, prior="init", generator=fixed(), **long)
    assert half.zero_one.kl < prior_alone.zero_one.kl - 0.1
    assert init.zero_one.kl < prior_alone.zero_one.kl - 0.1
    assert init.kl > 1


def quiet(weight: Tensor) -> StochasticNetwork:
    """A linear classifier that hardly draws: its risk on examples is a count."""
    model = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(weight)
    return StochasticNetwork(model, prior="init", prior_std=1e-9)


@pytest.mark.parametrize("draws", ["auto", "batch"])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 7, 10])
def test_an_uneven_last_batch_weighs_what_it_is(batch_size, draws):
    x, y = X[:7], Y[:7]
    network = quiet(torch.tensor([[0.3, 1.0, 0.2], [1.0, -0.2, 0.4], [0.1, 0.3, -1.0]]))
    network.draws = draws
    wrong = (network.model(x).argmax(1) != y).double()
    assert 0 < wrong.mean() < 1
    found = pac_bayes_certificate(network, x, y, batch_size=batch_size, passes=3)
    assert found.zero_one.risk == pytest.approx(wrong.mean().item(), abs=1e-12)
    p = network.model(x).detach().double().softmax(1).gather(1, y[:, None])
    loss = -p.log().mean().item() / math.log(1e5)
    assert found.cross_entropy.risk == pytest.approx(loss, rel=1e-5)
    assert found.draws == (21 if draws == "auto" else 21 / min(batch_size, 7))
    # the reference: means of batches, all alike, over their number less one
    means = torch.stack([w.mean() for w in wrong.split(batch_size)])
    reference = means.sum() / (len(means) - 1)
    assert not torch.isclose(reference, wrong.mean())


def bisected(q: float, c: float, steps: int = 30) -> float:
    """The reference's inverse: the last midpoint of a bisection, on whichever side it is."""
    low, high, p = q, 1.0, 0.0
    for _ in range(steps):
        p = (low + high) / 2
        if q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p)) > c:
            high = p
        else:
            low = p
    return p


def test_the_inverse_behind_a_certificate_is_never_below():
    short = 0
    for q, c in torch.rand(200, 2, generator=fixed()).double().tolist():
        q, c = 0.01 + 0.8 * q, c / 20
        divergence = [
            np.longdouble(q) * np.log(np.longdouble(q) / p)
            + (1 - np.longdouble(q)) * np.log((1 - np.longdouble(q)) / (1 - np.longdouble(p)))
            for p in (kl_inverse(q, c, side="upper"), bisected(q, c))
        ]
        assert divergence[0] >= c * (1 - 1e-15)
        short += divergence[1] < c
    assert short > 50


def test_losses_that_are_not_numbers_count_as_errors():
    class Broken(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            z = super().forward(input)
            return torch.where(input[:, :1] > 9, torch.nan, z)

    x = X.clone()
    x[60:, 0] = 10.0
    network = StochasticNetwork(Broken(3, 3), prior="init", prior_std=1e-9)
    with torch.no_grad():
        wrong = (network.model(x).argmax(1) != Y) | (x[:, 0] > 9)
    found = pac_bayes_certificate(network, x, Y, passes=1)
    assert found.zero_one.risk == pytest.approx(wrong.double().mean().item())
    assert found.cross_entropy.risk > 1 / 3


def test_pac_bayes_certificate_of_any_structure_of_inputs():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(2, 4), nn.Linear(1, 4)
            self.head = nn.Linear(4, 3)

        def forward(self, a: Tensor, b: Tensor) -> dict[str, Tensor]:
            return {"scores": self.head(torch.tanh(self.one(a) + self.two(b))), "other": a}

    x = {"a": X[:, :2], "b": X[:, 2:]}
    found = pac_bayes_certificate(Pair(), x, Y, output="scores", **QUICK)
    assert found.zero_one.kl < 1
    conv = nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Flatten(),
                         nn.Linear(4, 3))  # fmt: skip
    assert pac_bayes_certificate(conv, X, Y, **QUICK).draws == 90  # examples of their own
    normed = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    assert pac_bayes_certificate(normed, X, Y, **QUICK).draws == 2 * 45 / 20
    frozen = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3)).eval()
    frozen[0].requires_grad_(False)
    found = pac_bayes_certificate(frozen, X, Y, **QUICK)
    assert found.network.model.get_parameter("0.weight").equal(frozen.get_parameter("0.weight"))


def test_pac_bayes_certificate_tells_what_it_rests_on():
    found = pac_bayes_certificate(nn.Linear(3, 3), X, Y, **QUICK)
    text = " ".join(found.assumptions)
    for part in ("independent draws", "The prior saw 45 other examples", "33 scales", "0.035",
                 "not for its mean", "Frozen parameters"):  # fmt: skip
        assert part in text
    assert "\n" not in repr(found)


def test_draw_certificate_shows_risks_and_bounds():
    found = pac_bayes_certificate(nn.Linear(3, 3), X, Y, **QUICK)
    figure = draw_certificate(found)
    (axes,) = figure.axes
    bars: Any = axes.patches
    tops = {round(bar.get_y() + bar.get_height(), 9) for bar in bars}
    for risks in (found.zero_one, found.cross_entropy):
        assert {round(min(1.0, getattr(risks, kind)), 9) for kind in KINDS} <= tops
        assert round(risks.risk, 9) in tops
    assert draw_certificate(found, axes) is figure


class Noisy(nn.Linear):
    """A layer that augments its input, also in evaluation."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input + torch.randn_like(input))


class Company(nn.Linear):
    """A layer that looks at the whole batch."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input - input.mean(0))


def certify(model: nn.Module | None = None, x: Any = X, y: Any = Y, **knobs: Any) -> Any:
    given: dict[str, Any] = {**QUICK, **knobs}
    return pac_bayes_certificate(model or nn.Linear(3, 3), x, y, **given)


REFUSED: list[tuple[Any, str]] = [
    (lambda: certify(delta=0.0), "delta must be > 0, got 0.0"),
    (lambda: certify(delta=1.0), "delta must be < 1, got 1.0"),
    (lambda: certify(delta_mc=1.5), "delta_mc must be < 1, got 1.5"),
    (lambda: certify(p_min=0.0), "p_min must be > 0, got 0.0"),
    (lambda: certify(passes=0), "passes must be >= 1, got 0"),
    (lambda: certify(batch_size=0), "batch_size must be >= 1, got 0"),
    (lambda: certify(prior_scales=[]), "prior_scales must not be empty, got none"),
    (lambda: certify(prior_scales=[0.1, -1.0]), "prior_scales must be > 0, got -1.0"),
    (lambda: certify(y=Y + 1), "y must be classes of model, from 0 to 2, got 3"),
    (lambda: certify(y=Y - 1), "y must be classes of model, from 0 to 2, got -1"),
    (lambda: certify(x=X[:1], y=Y[:1]), "x must hold at least 2 examples, got 1"),
    (lambda: certify(prior_index=torch.tensor([1, 2]), bound_index=torch.tensor([2, 3])),
     "prior_index and bound_index must be disjoint, or the prior has seen the examples of the"
     " bound, got 2 in both"),
    (lambda: certify(prior_index=torch.tensor([1, 90])),
     "prior_index must be between 0 and 89, got 90"),
    (lambda: certify(bound_index=torch.tensor([4, 4])),
     "bound_index must not repeat an example, got 4 twice"),
    (lambda: certify(prior_index=torch.arange(90)),
     "bound_index must leave examples for it, got none of 90"),
    (lambda: certify(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))),
     "model must not have BatchNorm1d '1' in training mode: the loss of an example would depend on"
     " the others, and the bound needs independent losses; call model.eval() or use another"
     " normalisation"),
    (lambda: certify(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.3), nn.Linear(4, 3))),
     "model must not have Dropout '1' with dropout 0.3 in training mode: its masks are random and"
     " no part of the posterior; call model.eval() or set it to 0"),
    (lambda: certify(Noisy(3, 3)),
     "model must not draw random numbers in evaluation mode (augmentation, dropout): they are no"
     " part of the posterior, and a bound needs each example as it was drawn"),
    (lambda: certify(nn.Sequential(nn.Linear(3, 6), nn.Unflatten(1, (2, 3)))),
     "model must give a score for each class, got shape (8, 2, 3)"),
    (lambda: certify(x=DataLoader(TensorDataset(X, Y))),
     "x must hold the examples themselves, got a DataLoader: it may augment them, and a bound needs"
     " each example as it was drawn"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_pac_bayes_certificate_refuses(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()


def test_pac_bayes_certificate_refuses_examples_that_depend_on_each_other():
    with pytest.raises(Entangled, match="model must treat examples independently"):
        certify(Company(3, 3))


class ByTheLargest(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input / input.detach().abs().amax().clamp(min=50))


@pytest.mark.parametrize("place", [*range(8), 20, 29, 30, -1])  # some are ends of batches
def test_pac_bayes_certificate_refuses_one_example_that_all_depend_on(place: int):
    x = X.clone()
    x[place, 1] = 100.0
    with pytest.raises(Entangled, match="model must treat examples independently"):
        certify(ByTheLargest(3, 3), x=x)


class Clamping(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.clamp_(-0.5, 0.5))


def test_pac_bayes_certificate_leaves_examples_to_a_model_that_works_in_place():
    x = X.clone()
    certify(Clamping(3, 3), x=x)
    assert x.equal(X)
