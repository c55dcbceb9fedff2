"""Energies against the dense form and autograd; smooth signals lose no digits."""

import pytest
import torch

from tests.geometry.small_graphs import both_ways, path_edges
from vademecum.geometry import Adjacency, dirichlet_energy, graph_laplacian


@pytest.mark.parametrize("kind", [None, "sym", "gcn"])
@pytest.mark.parametrize("shape", [(6,), (6, 3), (6, 2, 2)])
def test_dirichlet_energy_is_the_form_of_the_laplacian(kind, shape):
    edges = torch.cat([both_ways((0, 1), (1, 2), (1, 2), (4, 3)), torch.tensor([[2], [2]])], 1)
    weight = torch.cat([torch.tensor([1.0, 2.0, 0.5, 3.0]).repeat(2), torch.tensor([2.0])]).double()
    x = torch.randn(shape).double()
    L = graph_laplacian(edges, 6, weight=weight, normalization=kind).matrix.to_dense()
    wanted = (x.flatten(1) * (L @ x.flatten(1))).sum() if x.ndim > 1 else x @ L @ x
    for memory in (None, 1, 100):
        found = dirichlet_energy(x, edges, weight=weight, normalization=kind, memory=memory)
        torch.testing.assert_close(found, wanted)
    prepared = Adjacency(edges, 6, weight=weight)
    torch.testing.assert_close(dirichlet_energy(x, prepared, normalization=kind), wanted)


def test_a_smooth_signal_loses_no_digits():
    x = 1e8 + 1e-6 * torch.arange(4).double()
    steps = x.diff().square().sum()
    found = dirichlet_energy(x, path_edges(4))
    torch.testing.assert_close(found, steps, rtol=1e-15, atol=0)
    assert found > 0
    again = dirichlet_energy(x.clone().requires_grad_(), path_edges(4))
    torch.testing.assert_close(again.detach(), steps, rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize("kind", [None, "sym", "gcn"])
def test_energies_are_twice_differentiable_in_signals_and_weights(kind):
    x = torch.randn(4, 2).double().requires_grad_()
    half = (1 + torch.rand(3)).double().requires_grad_()

    def energy(x, half):
        weight = torch.cat([half, half])
        return dirichlet_energy(x, path_edges(4), weight=weight, normalization=kind)

    assert torch.autograd.gradcheck(energy, (x, half))
    assert torch.autograd.gradgradcheck(energy, (x, half))


def test_hessian_by_transforms():
    L = graph_laplacian(path_edges(3)).matrix.to_dense()
    found = torch.func.hessian(lambda x: dirichlet_energy(x, path_edges(3)))(torch.randn(3))
    torch.testing.assert_close(found, 2 * L)


def test_graphs_without_edges_or_nodes_have_no_energy():
    none = torch.zeros(2, 0, dtype=torch.long)
    for kind in (None, "sym", "gcn"):
        assert dirichlet_energy(torch.randn(3, 2), none, normalization=kind) == 0
        assert dirichlet_energy(torch.zeros(0, 2), none, normalization=kind) == 0


BAD = [
    ({"edges": torch.tensor([[0], [1]])}, "undirected for an energy, got 0 -> 1"),
    ({"x": torch.randn(2)}, "< num_nodes = 2, got 2"),
    ({"x": torch.tensor(1.0)}, "x must have a row for each node"),
    ({"x": torch.tensor([1, 2, 3])}, "x must be floating point, got torch.int64"),
    ({"x": torch.tensor([1.0, torch.inf, 0.0])}, "x must be finite, got inf"),
    ({"x": torch.randn(3, dtype=torch.complex64)}, "x must be real, got torch.complex64"),
    ({"normalization": "rw"}, "normalization must be one of None, 'sym', 'gcn', got 'rw'"),
    ({"x": torch.randn(2), "edges": Adjacency(path_edges(3), 3)}, "x must have 3 rows"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=[m for _, m in BAD])
def test_bad_signals_are_refused(given, message, unchecked):
    with pytest.raises(ValueError, match=message):
        dirichlet_energy(**({"x": torch.randn(3), "edges": path_edges(3)} | given))
