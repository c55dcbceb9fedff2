"""A linear recurrent unit adds two numbers that lie far back; a tanh network does not learn it."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vademecum.recurrence import LRU, adding_task, lru_init

pytestmark = pytest.mark.slow

LESSONS = ((50, 200), (100, 100), (200, 100), (500, 150), (1000, 400))
"""How long sequences are, and for how many steps of training."""


class Adder(nn.Module):
    """Two layers: a fast one that sees what is marked, a slow one that has the sum in its state."""

    def __init__(self, d: int = 16, m: int = 8):
        super().__init__()
        self.inputs = nn.Linear(2, d)
        self.lru = LRU(d, m, layers=2, r_min=0.99999, r_max=0.999999, max_phase=0.0,
                       activation=nn.GELU)  # fmt: skip
        first: Any = self.lru.layers[0]
        first.load_state_dict(lru_init(m, r_max=0.5)._asdict(), strict=False)
        self.sum = nn.Linear(2 * m, 1)

    def forward(self, x: Tensor) -> Tensor:
        _, state = self.lru(self.inputs(x))
        return self.sum(4 * torch.view_as_real(state[-1]).flatten(1))


class Tanh(nn.Module):
    """The usual network, with its last state."""

    def __init__(self, m: int = 32):
        super().__init__()
        self.rnn, self.sum = nn.RNN(2, m, batch_first=True), nn.Linear(m, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.sum(self.rnn(x)[1][0])


def centred(x: Tensor) -> Tensor:
    """Numbers around 0 and marks of 3."""
    return (x - torch.tensor([0.5, 0.0])) * torch.tensor([2.0, 3.0])


def error_after_lessons(net: nn.Module) -> float:
    """The squared error on new sequences of 1000 steps; step sizes fall with the length."""
    adam = torch.optim.Adam(net.parameters(), betas=(0.9, 0.95))  # longer sequences: a new scale
    for T, steps in LESSONS:
        for i in range(steps):
            adam.param_groups[0]["lr"] = 0.01 * (50 / T) ** 0.8 * (1 - i / steps)
            x, y, _ = adding_task(64, T)
            adam.zero_grad()
            nn.functional.mse_loss(net(centred(x)), y).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            adam.step()
    x, y, _ = adding_task(500, 1000)
    with torch.no_grad():
        return float(nn.functional.mse_loss(net(centred(x)), y))


def test_two_layers_solve_the_adding_task_at_1000_steps():
    assert error_after_lessons(Adder()) < 0.01


def test_a_tanh_network_does_not():
    assert error_after_lessons(Tanh()) > 0.14, "1/6 is the error of the answer 1"
