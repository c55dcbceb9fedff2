"""Gradients that share memory, as those of sums do, are no obstacle."""

import torch
from torch import nn

from vademecum.robustness import apgd, deepfool, fgsm, pgd


class Sum(nn.Module):
    """Two classes that the sum of the inputs decides between: its gradient is expanded."""

    def forward(self, x):
        """The logits."""
        return torch.stack([x.sum(1) - 1, torch.zeros(len(x))], 1)


def test_models_whose_gradients_are_expanded():
    x, y = torch.tensor([[0.7, 0.7]]), torch.tensor([0])
    for attack in (fgsm, pgd, apgd, deepfool):  # the boundary is 0.2 away in the largest entry
        assert bool(attack(Sum(), x, y, norm="linf", radius=0.3).fooled), attack
        assert not bool(attack(Sum(), x, y, norm="linf", radius=0.15).fooled), attack
