"""The detector of small margins: its threshold, its rate of false alarms, what it sees."""
# pyright: reportArgumentType=false

import pytest
import torch
from scipy.stats import beta
from torch import nn
from torch.utils.data import DataLoader

from tests.robustness.digit_networks import RADIUS, digits, honest
from vademecum.robustness import deepfool, margin_detector, pgd


def gaps(values: torch.Tensor) -> torch.Tensor:
    """Inputs whose logits, themselves, have these gaps."""
    return torch.stack([values, torch.zeros_like(values), -torch.ones_like(values)], 1)


@pytest.mark.parametrize(
    ("n", "alpha", "k"),
    [(19, 0.05, 1), (19, 0.1, 2), (29, 0.1, 3), (99, 0.29, 29), (9, 0.1, 1), (99, 0.07, 7)],
)  # fmt: skip
def test_margin_detector_takes_the_right_rank(n, alpha, k):
    values = torch.randperm(n).double() + 1
    detector = margin_detector(nn.Identity(), gaps(values), alpha=alpha)
    assert detector.threshold == k
    assert detector.rate == k / (n + 1) <= alpha * (1 + 1e-12)
    assert detector.n == n
    assert detector.worst == pytest.approx(beta(k, n + 1 - k).ppf(0.99), rel=1e-9)
    assert detector(gaps(values)).sum() == k - 1  # the threshold itself is not below


def test_margins_are_gaps_of_the_two_largest_logits():
    z = torch.tensor([[1.0, 4.0, 2.5], [3.0, 3.0, 0.0], [-5.0, -1.0, -2.0]])
    detector = margin_detector(nn.Identity(), gaps(torch.arange(1.0, 20.0)))
    assert detector.margins(z).tolist() == [1.5, 0.0, 1.0]
    assert detector(z).tolist() == [False, True, False]


def test_false_alarms_are_as_rare_as_promised():
    """Exchangeable examples, also with many ties: at most alpha in the mean."""
    torch.manual_seed(0)
    for draw in (torch.rand, lambda n: torch.randint(1, 6, (n,)).float()):
        rates = []
        for _ in range(196):
            detector = margin_detector(nn.Identity(), gaps(draw(24)), alpha=0.2)
            rates.append(float(detector(gaps(draw(100))).float().mean()))
        rates = torch.tensor(rates)
        assert float(rates.mean()) <= 0.2 + 4 * float(rates.std()) / 14
        if draw is torch.rand:
            assert float(rates.mean()) == pytest.approx(0.2, abs=4 * float(rates.std()) / 14)


def test_minimal_perturbations_are_seen_and_others_are_not():
    _, _, x, y = digits()
    model = honest("tanh")
    detector = margin_detector(model, x[:70], alpha=0.1)
    x, y = x[70:], y[70:]
    near = deepfool(model, x, y)
    right = model(x).argmax(1) == y
    assert detector(near.x)[right].float().mean() > 0.9
    assert detector(x).float().mean() < 0.35
    far = pgd(model, x, y, radius=2 * RADIUS, loss="margin", target=(y + 1) % 10)
    past = model(far.x).topk(2).values
    assert detector(far.x)[past[:, 0] - past[:, 1] > detector.threshold].sum() == 0


def test_loaders_memory_and_preprocessing():
    _, _, x, y = digits()
    model = honest("relu")
    whole = margin_detector(model, x)
    loader = DataLoader(list(zip(x, y, strict=True)), batch_size=33)
    assert margin_detector(model, loader).threshold == pytest.approx(whole.threshold, rel=1e-4)
    assert margin_detector(model, x, memory=30_000).threshold == pytest.approx(
        whole.threshold, rel=1e-4
    )
    shifted = margin_detector(model, x - 1, preprocess=lambda x: x + 1)
    assert shifted.threshold == pytest.approx(whole.threshold, rel=1e-3)
    assert torch.equal(shifted(x - 1), whole(x))
    assert "model=Sequential(...)" in repr(whole)


def test_bad_arguments_are_refused(unchecked):
    x = gaps(torch.rand(18))
    with pytest.raises(ValueError, match=r"x must have >= 19 examples for alpha = 0.05, got 18"):
        margin_detector(nn.Identity(), x)
    with pytest.raises(ValueError, match=r"x must have >= 9 examples for alpha = 0.1, got 8"):
        margin_detector(nn.Identity(), x[:8], alpha=0.1)
    for alpha in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="alpha must be"):
            margin_detector(nn.Identity(), x, alpha=alpha)
    with pytest.raises(ValueError, match="k >= 2 classes"):
        margin_detector(nn.Linear(3, 1), x)
    with pytest.raises(ValueError, match="x must hold batches, got an empty DataLoader"):
        margin_detector(nn.Identity(), DataLoader([]))
