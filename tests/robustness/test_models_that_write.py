"""Models that write into their input: it stays, and results are those of a twin that does not."""

import pytest
import torch
from torch import Tensor, nn

from tests.robustness.attacked import attack


class Clamping(nn.Linear):
    """Leaves most inputs as they are."""

    writes = True

    def forward(self, input: Tensor) -> Tensor:
        inside = input.clamp_(0.02, 0.98) if self.writes else input.clamp(0.02, 0.98)
        return super().forward(inside)


@pytest.mark.parametrize("name", ["fgsm", "pgd", "square"])
def test_attacks_give_them_copies(name: str):
    torch.manual_seed(0)
    net, x = Clamping(4, 3), torch.rand(30, 4).clamp(0.03, 0.97)
    x[7, 1], y = 1.0, torch.arange(30) % 3
    before, found = x.clone(), list[Tensor]()
    for net.writes in (True, False):
        draw = torch.Generator().manual_seed(0)
        found.append(attack(name, net, x, y, "linf", radius=0.05, generator=draw).x)
    assert x.equal(before)
    assert found[0].equal(found[1])
