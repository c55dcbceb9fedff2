"""The random search with squares: no gradients, near the optimum of scores that are known."""

import math

import pytest
import torch
from torch import nn

from tests.robustness.attacked import examples, network
from vademecum.robustness import pgd, square
from vademecum.robustness.attacks.random_squares import _bump, _given, _window


def test_square_needs_no_gradient_and_others_say_so():
    net = network()
    x, y = examples(net)

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x.detach())

    found = square(Masked(), x, y, norm="linf", radius=0.1, steps=200)
    assert int(found.fooled.sum()) > len(x) // 2
    with pytest.raises(ValueError, match="an attack without gradients is `square`"):
        pgd(Masked(), x, y, norm="linf", radius=0.1)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_square_climbs_a_linear_score(norm):
    """It comes near the optimum of a smooth linear score, on images, rows and vectors.

    Less near in l2: on slopes of one sign the halves of a bump are worth nothing together, and the
    optimum is flat, where bumps are pyramids.
    """
    for shape in ((3, 8, 8), (2, 16), (32,)):
        d = math.prod(shape)
        w = torch.linspace(-1, 1, d).sign() * 0.01

        class Score(nn.Module):
            def forward(self, x, w=w):
                score = x.flatten(1) @ w
                return torch.stack([torch.full_like(score, 50.0), score], 1)

        x, y = torch.full((4, *shape), 0.5), torch.zeros(4, dtype=torch.long)
        radius = 0.1 if norm == "linf" else 1.0
        found = square(Score(), x, y, norm=norm, radius=radius, steps=400)
        best = radius * float(w.abs().sum() if norm == "linf" else w.norm())
        gained = (found.x - x).flatten(1) @ w
        assert float(gained.min()) > (0.6 if norm == "linf" else 0.4) * best
        torch.testing.assert_close(
            found.distance, torch.full((4,), radius).double(), rtol=0.05, atol=0
        )


def test_windows_and_bumps():
    u = torch.tensor([[0.0, 0.0], [0.999, 0.999]])
    place, inside = _window(u, 2, 3, 5, 6)
    assert inside.flatten(1).sum(1).tolist() == [6, 6]
    assert inside[0, :2, :3].all()
    assert inside[1, 3:, 3:].all()
    assert place[inside].tolist() == [0, 1, 2, 3, 4, 5] * 2
    for a, b in ((1, 1), (1, 6), (5, 5), (4, 7)):
        bump = _bump(a, b)
        assert bump.shape == (a, b)
        assert float(bump.norm()) == pytest.approx(1.0)
    assert float(_bump(4, 6).sum().abs()) < 1e-6
    assert float(_bump(5, 10)[2, 2]) == float(_bump(5, 10).max())
    rings = [sum((c + 1) ** -2 for c in range(d, 5)) for d in range(3)]
    row = torch.tensor([rings[d] for d in (2, 1, 0, 1, 2)]).double()
    torch.testing.assert_close(_bump(5, 10)[2, :5] / _bump(5, 10)[2, 2], row / rings[0])


def test_a_step_spends_what_is_left_of_the_radius():
    """Over all channels: what was outside of both windows stays, and the rest is shared."""
    v, r = torch.randn(6, 3, 5, 7, dtype=torch.float64), torch.full((6, 1, 1, 1), 2.0).double()
    v = 0.8 * r * v / v.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    here, there = (torch.zeros(6, 5, 7, dtype=torch.bool) for _ in range(2))
    here[:, :3, 1:4], there[:, 2:, 4:] = True, True
    new = torch.randn_like(v) * here[:, None]
    moved = _given(v, r, new, here, there)
    torch.testing.assert_close(moved.flatten(1).norm(dim=1), r.flatten())
    away = ~(here | there)
    assert torch.equal(moved[:, :, away[0]], v[:, :, away[0]])
    assert not moved[:, :, (there & ~here)[0]].any()
    own = (v * here[:, None]).flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    wanted = (new + v * here[:, None] / own)[:, :, here[0]]
    torch.testing.assert_close(
        torch.nn.functional.normalize(moved[:, :, here[0]], dim=2),
        torch.nn.functional.normalize(wanted, dim=2),
    )
