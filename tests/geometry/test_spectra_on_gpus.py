"""Spectra, filters and instruments of graph networks on a CUDA device."""

import pytest
import torch

from tests.geometry.small_graphs import path_edges
from vademecum.geometry import (
    PolynomialConv,
    dirichlet_energy,
    graph_fourier,
    graph_laplacian,
    leaf_influence,
    oversmoothing,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]


def test_a_filter_layer_gives_the_same_bits_twice():
    edges = torch.randint(500, (2, 4000), device="cuda")
    edges, x = torch.cat([edges, edges.flip(0)], 1), torch.randn(500, 16, device="cuda")
    layer = PolynomialConv(16, 8, degree=3).cuda()
    runs = []
    for _ in range(2):
        y = layer(x, edges)
        runs.append([y, *torch.autograd.grad(y.square().sum(), list(layer.parameters()))])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("kind", [None, "sym", "gcn"])
def test_laplacians_modes_and_energies_are_those_of_the_cpu(kind):
    edges, x = path_edges(40), torch.randn(40, 3, dtype=torch.float64)
    knobs = {"normalization": kind, "dtype": torch.float64}
    here, there = (graph_laplacian(e, **knobs) for e in (edges, edges.cuda()))
    torch.testing.assert_close((there.operator @ x.cuda()).cpu(), here.operator @ x)
    torch.testing.assert_close(there.matrix.to_dense().cpu(), here.matrix.to_dense())
    values = graph_fourier(edges.cuda(), **knobs).eigenvalues.cpu()
    torch.testing.assert_close(values, graph_fourier(edges, **knobs).eigenvalues)
    energy = dirichlet_energy(x.cuda(), edges.cuda(), normalization=kind)
    torch.testing.assert_close(energy.cpu(), dirichlet_energy(x, edges, normalization=kind))


def test_instruments_are_those_of_the_cpu():
    layer, edges = PolynomialConv(3, 2, degree=2), path_edges(9)
    x = torch.randn(9, 3)
    here, near = oversmoothing(layer, (x, edges)), leaf_influence(layer, (x, edges), node=4)
    layer, inputs = layer.cuda(), (x.cuda(), edges.cuda())
    there, far = oversmoothing(layer, inputs), leaf_influence(layer, inputs, node=4)
    torch.testing.assert_close(there.energy.cpu(), here.energy, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(there.rate.cpu(), here.rate)
    torch.testing.assert_close(far.influence.cpu(), near.influence, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(far.by_hop.cpu(), near.by_hop, rtol=1e-4, atol=1e-6)
