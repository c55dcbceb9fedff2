"""Gradients that share memory, as those of sums do, or are no numbers are no obstacle."""

import torch
from torch import nn

from vademecum.robustness import apgd, deepfool, fgsm, pgd
from vademecum.robustness._logits import as_classifier


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


class Root(nn.Module):
    """A root that is kept from zero by `where`, through which its infinite slope comes as NaN."""

    def forward(self, x):
        """The logits."""
        root = torch.where(x > 0, x.sqrt(), 0.0)
        return torch.stack([root[:, 0] + 3 * root[:, 1], torch.zeros(len(x))], 1)


def test_entries_whose_derivative_is_no_number_do_not_move():
    x = torch.tensor([[0.0, 0.25], [0.25, 0.0]])
    with as_classifier(Root(), x) as logits:
        _, _, slope = logits.gradient(x, lambda z: z[:, 0])
    assert slope.tolist() == [[0.0, 3.0], [1.0, 0.0]]
