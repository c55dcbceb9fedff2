"""What the pictures of this room draw."""

import torch

from vademecum.tooling.pictures import descend, half_up


def test_half_up():
    assert [half_up(x) for x in (-2.5, -0.5, 0.4, 0.5, 2.5)] == [-2, 0, 0, 1, 3]


def test_three_training_loops():
    first, slopes = torch.tensor([-1.4, 1.0]), torch.tensor([1.0, 3.0])
    steps = torch.arange(5)[:, None]
    torch.testing.assert_close(descend(4, 0.1, 1), first * (1 - 0.1 * slopes) ** steps)
    w, total = first, torch.zeros(2)
    for step in range(4):  # gradients of two steps are added up
        total = slopes * w + (total if step % 2 else 0)
        w = w - 0.1 * total
    torch.testing.assert_close(descend(4, 0.1, 2)[-1], w)
    assert descend(60, 0.1, 0)[-20:].abs().max() > 1
