"""Polynomial filters against NumPy's polynomials, and the layer that is made of them."""

import numpy as np
import pytest
import torch

from tests.geometry.small_graphs import both_ways, path_edges
from vademecum.geometry import Adjacency, PolynomialConv, graph_laplacian, polynomial_filter
from vademecum.testing import check_part


def test_polynomial_filter_on_a_diagonal_is_a_polynomial():
    z = torch.linspace(0, 3, 7, dtype=torch.float64)
    for c in (torch.randn(6).double(), torch.tensor([2.0]).double()):
        found = polynomial_filter(z.diag(), torch.ones(7).double(), c)
        np.testing.assert_allclose(
            found, np.polynomial.polynomial.polyval(z.numpy(), c.numpy()), rtol=1e-12
        )
        for top, given in ((3.0, None), (3.0, 3.0), (5.0, 5.0)):
            found = polynomial_filter(
                z.diag(), torch.ones(7).double(), c, basis="chebyshev", lambda_max=given
            )
            wanted = np.polynomial.chebyshev.chebval(2 * z.numpy() / top - 1, c.numpy())
            np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_filters_are_differentiable_in_signals_and_coefficients():
    L = graph_laplacian(path_edges(4), dtype=torch.float64)
    x, c = torch.randn(4, 2).double().requires_grad_(), torch.randn(4).double().requires_grad_()
    for knobs in ({}, {"basis": "chebyshev", "lambda_max": 4.0}):
        assert torch.autograd.gradcheck(
            lambda x, c, k=knobs: polynomial_filter(L, x, c, **k), (x, c)
        )


def test_a_graph_without_edges_scales_nothing():
    L = graph_laplacian(torch.zeros(2, 0, dtype=torch.long), 3)
    x = torch.tensor([1.0, 2.0, 3.0])
    found = polynomial_filter(L, x, torch.tensor([0.0, 1.0]), basis="chebyshev")
    torch.testing.assert_close(found, -x)  # T_1(-1)


BAD = [
    ({"x": torch.randn(4)}, "x must have 3 rows, got shape"),
    ({"coefficients": torch.zeros(0)}, "coefficients must not be empty"),
    ({"coefficients": torch.ones(2, 2)}, "coefficients must have 1 axes"),
    ({"basis": "legendre"}, "basis must be one of 'powers', 'chebyshev', got 'legendre'"),
    ({"basis": "chebyshev", "lambda_max": 0.0}, "lambda_max must be > 0, got 0.0"),
    ({"L": torch.ones(2, 3)}, r"L must be square, got shape \(2, 3\)"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=[m for _, m in BAD])
def test_bad_filters_are_refused(given, message, unchecked):
    good = {"L": torch.eye(3), "x": torch.randn(3), "coefficients": torch.ones(2)}
    with pytest.raises(ValueError, match=message):
        polynomial_filter(**(good | given))


# the layer


@pytest.mark.parametrize("sizes", [(3, 2), (2, 4)])
def test_polynomial_conv_keeps_the_laws_of_parts(sizes):
    edges = both_ways((0, 1), (1, 2), (3, 1))
    part = PolynomialConv(*sizes, degree=2)
    torch.nn.init.normal_(part.weight)
    skip = {"independence": "neighbours"}
    check_part(part, (torch.randn(5, sizes[0]), edges), in_dims=(0, None), skip=skip)


def test_prepared_graphs_and_graphs_side_by_side_give_the_same():
    layer = PolynomialConv(2, 3, degree=3).double().requires_grad_(False)
    one, two = path_edges(4), both_ways((0, 1), (1, 2), (2, 0))
    x, y = torch.randn(4, 2).double(), torch.randn(3, 2).double()
    both = layer(torch.cat([x, y]), torch.cat([one, two + 4], 1))
    torch.testing.assert_close(both[:4], layer(x, Adjacency(one, 4)), rtol=0, atol=1e-15)
    torch.testing.assert_close(both[4:], layer(y, two), rtol=0, atol=1e-15)


def test_a_layer_is_twice_differentiable_in_features_and_edge_weights():
    layer = PolynomialConv(2, 1, degree=2, normalization="gcn").double()
    x = torch.randn(3, 2).double().requires_grad_()
    half = (1 + torch.rand(2)).double().requires_grad_()

    def f(x, half):
        return layer(x, path_edges(3), torch.cat([half, half]))

    assert torch.autograd.gradcheck(f, (x, half))
    assert torch.autograd.gradgradcheck(f, (x, half))


def test_degree_zero_and_empty_graphs():
    layer = PolynomialConv(2, 2, degree=0)
    x, none = torch.randn(3, 2), torch.zeros(2, 0, dtype=torch.long)
    assert layer.bias is not None
    torch.testing.assert_close(layer(x, none), x @ layer.weight[0] + layer.bias)
    assert repr(layer) == "PolynomialConv(2, 2, degree=0, normalization='sym', bias=True)"


def test_bad_layers_are_refused(unchecked):
    with pytest.raises(ValueError, match="degree must be >= 0, got -1"):
        PolynomialConv(1, 1, degree=-1)
    with pytest.raises(ValueError, match="normalization must be one of"):
        PolynomialConv(1, 1, degree=1, normalization="symmetric")
    layer = PolynomialConv(2, 1, degree=1)
    with pytest.raises(ValueError, match="x must be 2 wide"):
        layer(torch.randn(3, 3), path_edges(3))
    with pytest.raises(ValueError, match="undirected unless directed=True"):
        layer(torch.randn(2, 2), torch.tensor([[0], [1]]))
    loose = PolynomialConv(2, 1, degree=1, directed=True)
    assert loose(torch.randn(2, 2), torch.tensor([[0], [1]])).shape == (2, 1)
