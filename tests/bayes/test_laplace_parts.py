"""Parts of Laplace's approximation by themselves: evidence, bases, laws of outputs, last layers."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vademecum.bayes import laplace
from vademecum.bayes._curvature_blocks import (
    DenseCurvature,
    DiagonalCurvature,
    LayerBlock,
    LayerCurvatures,
)
from vademecum.bayes._evidence import best_prior, log_evidence
from vademecum.bayes._linearised_outputs import OutputLaw

SIZES = [(100.0, 1e6), (0.3, 0.2), (1e-6, 3.0), (1e4, 1e-5), (0.9, 0.9)]


@pytest.mark.parametrize(("size", "value"), SIZES)
@pytest.mark.parametrize("P", [1, 3])
def test_the_best_prior_of_equal_curvatures(size, value, P):
    """The positive root of R tau^2 + R lambda tau - P lambda = 0."""
    root = math.sqrt(size**2 * value**2 + 4 * size * P * value)
    tau = 2 * P * value / (size * value + root)
    found = best_prior(size, torch.full((P,), value, dtype=torch.float64))
    assert found == pytest.approx(tau**-0.5, rel=1e-9)


def test_the_evidence_is_largest_there():
    values = torch.tensor([0.0, 0.3, 40.0]).double()
    best = best_prior(2.0, values)
    top = log_evidence(-3.0, 2.0, values, best)
    assert all(log_evidence(-3.0, 2.0, values, best * c) < top for c in (0.98, 1.02))
    by_hand = -3 - 2 / (2 * 1.5**2) - sum(math.log1p(1.5**2 * v) for v in values.tolist()) / 2
    assert log_evidence(-3.0, 2.0, values, 1.5) == pytest.approx(by_hand)


@pytest.mark.parametrize(("size", "values"), [(0.0, [1.0]), (1.0, [0.0, 0.0])])
def test_no_evidence_without_weights_or_curvature(size, values):
    with pytest.raises(ValueError, match="prior must be a number where weights or curvatures are"):
        best_prior(size, torch.tensor(values).double())


def spd(n: int) -> Tensor:
    A = torch.randn(n, n + 2).double()
    return A @ A.T


@pytest.mark.parametrize("batch", [(), (4,), (4, 3), (2, 4, 3)])
@pytest.mark.parametrize("kind", ["layers", "dense", "diagonal"])
def test_bases_of_any_batch_of_vectors(kind, batch):
    """The matrix is into, times the eigenvalues, and back."""
    order = torch.randperm(10)
    one, other = order[:6].view(2, 3), order[6:].view(4, 1)
    G = torch.zeros(10, 10).double()
    blocks = []
    for places, scale in ((one, 0.5), (other, 2.0)):
        B, A = spd(len(places)), spd(places.shape[1])
        blocks.append(LayerBlock(B, A, places, scale))
        G[places.flatten()[:, None], places.flatten()] = scale * torch.kron(B, A)
    if kind == "diagonal":
        G = torch.diag(G.diagonal())
    curvature: Any = {
        "layers": lambda: LayerCurvatures(blocks), "dense": lambda: DenseCurvature(G),
        "diagonal": lambda: DiagonalCurvature(G.diagonal()),
    }[kind]()  # fmt: skip
    v = torch.randn(*batch, 10).double()
    torch.testing.assert_close(curvature.back(curvature.into(v) * curvature.values), v @ G)
    torch.testing.assert_close(curvature.back(curvature.into(v)), v)


def test_curvatures_are_never_negative():
    below = torch.diag(torch.tensor([-1e-9, 2.0]).double())
    assert DenseCurvature(below).values.tolist() == [0, 2]
    turned = DenseCurvature(torch.tensor([[2.0, 1.0], [0.0, 2.0]]).double())  # the symmetric part
    torch.testing.assert_close(turned.values, torch.tensor([1.5, 2.5]).double())


LAWS = {
    "factors": (torch.tensor([[[2.0, 0.0], [1.0, 1.0]], [[1.0, 0.0], [-3.0, 0.5]]]), None),
    "columns": (torch.tensor([[2.0, 0.5], [0.1, 3.0]]), torch.tensor([[0.6, -0.8], [0.8, 0.6]])),
    "units": (torch.tensor([[2.0, 0.5], [0.1, 3.0]]), None),
}


@pytest.mark.parametrize("kind", LAWS)
def test_laws_of_outputs_in_every_form(kind):
    scale, basis = (None if t is None else t.double() for t in LAWS[kind])
    assert scale is not None
    mean = torch.tensor([[1.0, -1.0], [0.5, 7.0]]).double()
    law = OutputLaw(mean, scale, basis)
    roots = scale if scale.ndim == 3 else torch.diag_embed(scale)
    roots = roots if basis is None else basis @ roots
    wanted = torch.stack([R @ R.T for R in roots])
    torch.testing.assert_close(law.covariance(), wanted)
    torch.testing.assert_close(law.variance, wanted.diagonal(dim1=1, dim2=2))
    drawn = law.sample(40_000, generator=torch.Generator().manual_seed(0)) - mean
    assert bool((drawn.mean(0).abs() < 5.5 * (law.variance / 40_000).sqrt()).all())
    found = torch.einsum("sni,snj->nij", drawn, drawn) / 40_000
    spread = wanted.diagonal(dim1=1, dim2=2)
    error = (spread[:, :, None] * spread[:, None] + wanted**2).sqrt() / 200
    assert bool(((found - wanted).abs() < 5.5 * error).all())
    assert abs(float((drawn[:, 0, 0] * drawn[:, 1, 1]).mean())) < 0.15  # examples apart


class Cut(nn.Module):
    """Passes on what is negative, or positive, alone."""

    def __init__(self, sign: int):
        super().__init__()
        self.sign = sign

    def forward(self, z: Tensor) -> Tensor:
        return self.sign * (self.sign * z).relu()


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_layer_whose_outputs_are_cut_is_not_the_last(sign, outputs):
    layer = nn.Linear(2, outputs)
    model = nn.Sequential(layer, Cut(sign))
    nn.init.constant_(layer.bias, 100.0 * sign)  # nothing is cut for these inputs
    x, y = torch.randn(4, 2), torch.zeros(4, outputs)
    with pytest.raises(ValueError, match="model must end in a linear layer"):
        laplace(model, x, y, likelihood="gaussian")
