"""Modes of graphs against closed forms; large graphs; what is refused."""

import math

import pytest
import torch
from torch import nn

from tests.geometry.small_graphs import both_ways, path_edges
from vademecum.geometry import graph_fourier, graph_laplacian


def test_graph_fourier_of_a_large_path_is_a_cosine_transform():
    n, k = 6000, 5
    F = graph_fourier(path_edges(n), k=k, dtype=torch.float64)
    wanted = torch.tensor([2 - 2 * math.cos(math.pi * i / n) for i in range(k)]).double()
    torch.testing.assert_close(F.eigenvalues, wanted, atol=1e-13, rtol=1e-6)
    assert F.modes.shape == (n, k)
    wave = (math.pi * 3 * (torch.arange(n).double() + 0.5) / n).cos() * math.sqrt(2 / n)
    torch.testing.assert_close(F.transform(wave).abs()[3], torch.ones((), dtype=torch.float64))
    torch.testing.assert_close(F.inverse(F.transform(wave)), wave, atol=1e-8, rtol=0)
    with pytest.raises(ValueError, match="all 6000 for a filter, got 5"):
        F.filter(wave, torch.exp)


@pytest.mark.parametrize("kind", [None, "sym", "gcn"])
def test_modes_diagonalise_the_laplacian(kind):
    edges = both_ways((0, 1), (1, 2), (2, 0), (3, 4))
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0]).double().repeat(2)
    F = graph_fourier(edges, 6, weight=weight, normalization=kind)
    L = graph_laplacian(edges, 6, weight=weight, normalization=kind).matrix.to_dense()
    torch.testing.assert_close(F.modes @ F.eigenvalues.diag() @ F.modes.T, L)
    assert F.eigenvalues.min() == 0
    few = graph_fourier(edges, 6, weight=weight, normalization=kind, k=2)
    assert few.modes.shape == (6, 2)
    torch.testing.assert_close(few.eigenvalues, F.eigenvalues[:2])


def test_transforms_of_many_axes():
    F, x = graph_fourier(path_edges(4), dtype=torch.float64), torch.randn(4, 3, 2).double()
    torch.testing.assert_close(F.inverse(F.transform(x)), x)
    torch.testing.assert_close(F.transform(x)[:, 1], F.transform(x[:, 1]))
    image = F.filter(x, lambda z: z)
    wanted = graph_laplacian(path_edges(4), dtype=torch.float64).operator @ x.flatten(1)
    torch.testing.assert_close(image.flatten(1), wanted)


def test_a_response_may_be_learned():
    class Response(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = nn.Parameter(torch.tensor(0.5))

        def forward(self, z):
            return (-self.t * z).exp()

    response, F = Response(), graph_fourier(path_edges(3))
    F.filter(torch.tensor([1.0, 0.0, 0.0]), response).square().sum().backward()
    assert response.t.grad is not None
    assert response.t.grad < 0


def test_weights_that_are_negative_may_give_negative_frequencies():
    weight = torch.tensor([-1.0, -1.0])
    torch.testing.assert_close(
        graph_fourier(both_ways((0, 1)), weight=weight).eigenvalues, torch.tensor([-2.0, 0.0])
    )


BAD = [
    ({"normalization": "rw"}, "one of None, 'sym', 'gcn', got 'rw'"),
    ({"k": 0}, "k must be >= 1, got 0"),
    ({"k": 4}, "k must be <= 3, got 4"),
    ({"edges": torch.tensor([[0], [1]])}, "undirected"),
    ({"dtype": torch.bfloat16}, "dtype must be torch.float32 or torch.float64, got torch.bfloat16"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=[m for _, m in BAD])
def test_what_has_no_modes_is_refused(given, message, unchecked):
    with pytest.raises(ValueError, match=message):
        graph_fourier(**({"edges": path_edges(3)} | given))


def test_signals_that_do_not_fit_are_refused(unchecked):
    F = graph_fourier(path_edges(3))
    with pytest.raises(ValueError, match="x must have 3 rows, got shape"):
        F.transform(torch.randn(4))
    with pytest.raises(ValueError, match="x must have 3 rows, got shape"):
        F.inverse(torch.randn(2, 3))
    with pytest.raises(ValueError, match=r"of the modes' dtype torch\.float32, got torch\.float64"):
        F.transform(torch.randn(3).double())
    with pytest.raises(ValueError, match=r"response must give a tensor of 3 numbers, got 1\.0"):
        F.filter(torch.randn(3), lambda z: 1.0)  # pyright: ignore
    with pytest.raises(ValueError, match="response must give 3 numbers, got shape"):
        F.filter(torch.randn(3), lambda z: z[:2])
