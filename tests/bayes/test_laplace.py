"""Laplace's approximation against dense Jacobians, Hessians, Kronecker products and exact laws."""

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.bayes import BayesianLinearRegression, laplace
from vademecum.gradients import functional
from vademecum.models import mlp
from vademecum.testing import check_instrument

X = torch.randn(11, 3, generator=torch.Generator().manual_seed(0)).double()
R = torch.randn(11, 2, generator=torch.Generator().manual_seed(1)).double()
TARGETS = {"gaussian": R, "categorical": (R[:, 0] > 0).long(), "bernoulli": (R > 0).double()}
NOISE, PRIOR = 0.7, 0.8


def net(widths=(3, 5, 2)) -> nn.Sequential:
    torch.manual_seed(2)
    model = mlp(list(widths), nn.Tanh).double()
    assert isinstance(model, nn.Sequential)
    return model


def curvature(z: Tensor, likelihood: str) -> Tensor:
    """The Hessians of minus the log-likelihood in the outputs, by differentiating twice."""
    y = TARGETS[likelihood]

    def loss(z: Tensor, y: Tensor) -> Tensor:
        if likelihood == "gaussian":
            return (z - y).square().sum() / (2 * NOISE**2)
        if likelihood == "categorical":
            return z.logsumexp(0) - z[y]
        return F.binary_cross_entropy_with_logits(z, y, reduction="sum")

    return torch.stack([torch.func.hessian(loss)(a, b) for a, b in zip(z, y, strict=True)])


def jacobians(model: nn.Module) -> tuple[Tensor, Tensor]:
    f = functional(model)
    return f(f.theta, X), torch.func.jacrev(lambda t: f(t, X))(f.theta)


@pytest.mark.parametrize("likelihood", TARGETS)
@pytest.mark.parametrize("subset", ["last", "all"])
@pytest.mark.parametrize("structure", ["full", "diagonal"])
def test_covariances_are_the_dense_ones(likelihood, subset, structure):
    model = net()
    z, J = jacobians(model)
    y = TARGETS[likelihood]
    knobs: dict[str, Any] = {"likelihood": likelihood, "noise": NOISE, "prior": PRIOR}
    found = laplace(model, X, y, **knobs, subset=subset, structure=structure)
    assert len(found.mean) == (12 if subset == "last" else 32)
    J = J[..., found.places]
    G = torch.einsum("nkp,nkl,nlq->pq", J, curvature(z, likelihood), J)
    G = torch.diag(G.diag()) if structure == "diagonal" else G
    Sigma = torch.linalg.inv(G + torch.eye(len(G)) / PRIOR**2)
    law = found.outputs(X)
    wanted = J @ Sigma @ J.mT
    torch.testing.assert_close(law.mean, z)
    torch.testing.assert_close(law.covariance(), wanted)
    torch.testing.assert_close(law.variance, wanted.diagonal(dim1=1, dim2=2))
    theta = functional(model).theta[found.places]
    log_prior = -theta.square().sum() / (2 * PRIOR**2) - len(theta) * math.log(PRIOR)
    loss = {
        "gaussian": lambda: -torch.distributions.Normal(z, NOISE).log_prob(y).sum(),
        "categorical": lambda: F.cross_entropy(z, y, reduction="sum"),
        "bernoulli": lambda: F.binary_cross_entropy_with_logits(z, y, reduction="sum"),
    }
    evidence = -loss[likelihood]() + log_prior + Sigma.logdet() / 2
    assert found.log_evidence == pytest.approx(float(evidence), rel=1e-10)
    used = len(G) - Sigma.trace() / PRIOR**2
    assert found.effective_parameters == pytest.approx(float(used), rel=1e-9)


def kronecker(model: nn.Sequential, likelihood: str) -> tuple[Tensor, Tensor]:
    """Blocks written out, layer by layer, over the rows of (W, b), and where they are."""
    z, _ = jacobians(model)
    n, roots = len(X), torch.linalg.eigh(curvature(z, likelihood))
    L = roots.eigenvectors * roots.eigenvalues.clamp(min=0).sqrt()[:, None]
    blocks, places, start, h = [], [], 0, X
    layers = [m for m in model if isinstance(m, nn.Linear)]
    for at, layer in enumerate(layers):
        a = torch.cat([h, torch.ones(n, 1)], 1)
        out = h @ layer.weight.T + layer.bias

        def rest(s: Tensor, at: int = at) -> Tensor:
            for later in layers[at + 1 :]:
                s = s.tanh() @ later.weight.T + later.bias
            return s

        D = torch.stack([torch.func.jacrev(rest)(row) for row in out])  # (n, k, out)
        B = torch.einsum("nka,nkc,nlc,nlb->ab", D, L, L, D) / n
        blocks.append(torch.kron(B, a.T @ a))
        m, d = layer.weight.shape
        w = start + torch.arange(m * d).view(m, d)
        places.append(torch.cat([w, start + m * d + torch.arange(m)[:, None]], 1).flatten())
        start, h = start + m * d + m, out.tanh()
    return torch.block_diag(*blocks).detach(), torch.cat(places)


@pytest.mark.parametrize("likelihood", TARGETS)
@pytest.mark.parametrize("subset", ["last", "all"])
def test_kronecker_products_are_never_written_out_but_right(likelihood, subset):
    model = net((3, 4, 5, 2))
    knobs: dict[str, Any] = {"likelihood": likelihood, "noise": NOISE, "prior": PRIOR}
    found = laplace(model, X, TARGETS[likelihood], **knobs, subset=subset, structure="kron")
    G, places = kronecker(model, likelihood)
    if subset == "last":
        G, places = G[-12:, -12:], places[-12:]
    Sigma = torch.linalg.inv(G + torch.eye(len(G)) / PRIOR**2)
    _, J = jacobians(model)
    wanted = J[..., places] @ Sigma @ J[..., places].mT
    torch.testing.assert_close(found.outputs(X).covariance(), wanted)
    torch.testing.assert_close(found.curvature.values.sort().values, torch.linalg.eigvalsh(G))
    # draws: whitened by the precision they are standard normal
    drawn = found.sample(4000, generator=torch.Generator().manual_seed(0)) - functional(model).theta
    off = drawn[:, places] @ torch.linalg.cholesky(torch.linalg.inv(Sigma))
    eye = torch.eye(len(G)).double()
    torch.testing.assert_close(off.T @ off / 4000, eye, atol=0.11, rtol=0)
    still = torch.ones(len(functional(model).theta), dtype=torch.bool)
    still[places] = False
    assert (drawn[:, still] == 0).all()


def test_one_convolution_at_one_position_is_a_linear_layer():
    torch.manual_seed(0)
    dense = nn.Linear(12, 2).double()
    shaped = nn.Sequential(nn.Conv2d(3, 2, 2), nn.Flatten()).double()
    with torch.no_grad():
        shaped.get_parameter("0.weight").copy_(dense.weight.view(2, 3, 2, 2))
        shaped.get_parameter("0.bias").copy_(dense.bias)
    x, y = torch.randn(9, 3, 2, 2).double(), torch.randint(2, (9,))
    knobs: dict[str, Any] = {"likelihood": "categorical", "subset": "all", "structure": "kron"}
    one = laplace(shaped, x, y, **knobs)
    other = laplace(dense, x.flatten(1), y, **knobs)
    torch.testing.assert_close(
        one.outputs(x).covariance(), other.outputs(x.flatten(1)).covariance()
    )
    assert one.log_evidence == pytest.approx(other.log_evidence, rel=1e-10)


def test_linear_models_have_the_conjugate_posterior():
    exact = BayesianLinearRegression(noise=NOISE, prior=PRIOR, fit_intercept=False)
    exact.fit(X, R[:, 0])
    model = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(exact.coef_)
    for subset, structure in (("last", "full"), ("last", "kron"), ("all", "full")):
        found = laplace(model, X, R[:, 0], likelihood="gaussian", noise=NOISE, prior=PRIOR,
                        subset=subset, structure=structure)  # fmt: skip
        std = exact.predict(X, return_std=True)[1]
        torch.testing.assert_close(found.outputs(X).variance[:, 0], std**2 - NOISE**2)
        assert found.log_evidence == pytest.approx(exact.log_evidence_, rel=1e-10)


@pytest.mark.parametrize("structure", ["full", "kron", "diagonal"])
def test_the_prior_of_largest_evidence(structure):
    knobs: dict[str, Any] = {"likelihood": "categorical", "subset": "all", "structure": structure}
    y = TARGETS["categorical"]
    best = laplace(net(), X, y, **knobs, prior="evidence")
    for factor in (0.98, 1.02):
        other = laplace(net(), X, y, **knobs, prior=factor * best.prior)
        assert other.log_evidence < best.log_evidence - 1e-6
    size = float(functional(net()).theta.square().sum())
    assert best.effective_parameters == pytest.approx(size / best.prior**2, rel=1e-9)  # MacKay


def test_probabilities_without_draws():
    found = laplace(net(), X, TARGETS["categorical"], likelihood="categorical", prior=3.0)
    law = found.outputs(X)
    p = found.probabilities(X)
    drawn = law.sample(40_000, generator=torch.Generator().manual_seed(0))
    off = drawn - law.mean
    torch.testing.assert_close(off.square().mean(0), law.variance, rtol=0.05, atol=1e-3)
    across = (off[..., 0] * off[..., 1]).mean(0)
    torch.testing.assert_close(across, law.covariance()[:, 0, 1], rtol=0.05, atol=0.02)
    one = laplace(net(), X, TARGETS["bernoulli"], likelihood="bernoulli", prior=3.0)
    drawn = one.outputs(X).sample(40_000).sigmoid().mean(0)
    torch.testing.assert_close(one.probabilities(X), drawn, atol=0.02, rtol=0)  # MacKay's error
    assert (p.sum(1) - 1).abs().max() < 1e-12
    with pytest.raises(ValueError, match="likelihood must be of classes, got 'gaussian'"):
        laplace(net(), X, R, likelihood="gaussian").probabilities(X)


def test_memory_splits_the_work():
    knobs: dict[str, Any] = {"likelihood": "categorical", "subset": "all", "structure": "full"}
    found = laplace(net(), X, TARGETS["categorical"], **knobs)
    one, other = found.outputs(X).covariance(), found.outputs(X, memory=1).covariance()
    torch.testing.assert_close(one, other)


def test_a_thousand_classes_take_no_kronecker_product():
    torch.manual_seed(0)
    model, x = nn.Linear(64, 300), torch.randn(50, 64)
    found = laplace(model, x, torch.randint(300, (50,)), likelihood="categorical")
    assert found.outputs(x).scale.shape == (50, 300)
    assert found.outputs(x).variance.isfinite().all()


@pytest.mark.parametrize("structure", ["full", "kron", "diagonal"])
def test_it_leaves_the_model_as_it_was(structure):
    data = torch.randn(6, 5), torch.tensor([0, 1, 2, 0, 1, 2])

    def ask(model, data):
        found = laplace(model, *data, likelihood="categorical", structure=structure)
        return found.outputs(data[0]).variance

    without = {"no_parameters": "there is no posterior"}
    check_instrument(ask, nn.Linear(5, 3), data, skip=without)


@pytest.mark.parametrize("structure", ["full", "kron", "diagonal"])
def test_networks_in_half_precision(structure):
    knobs: dict[str, Any] = {"likelihood": "gaussian", "subset": "all", "structure": structure}
    wanted = laplace(net(), X, R, **knobs).outputs(X).variance
    found = laplace(net().bfloat16(), X.bfloat16(), R.bfloat16(), **knobs).outputs(X.bfloat16())
    torch.testing.assert_close(found.variance.double(), wanted, rtol=0.1, atol=0.02)


def odd(kind: str) -> nn.Module:
    if kind == "norm":
        return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)).double()
    if kind == "end":
        return nn.Sequential(nn.Linear(3, 2), nn.Tanh()).double()
    if kind == "positive":  # its outputs are those of the linear layer, as it is now
        model = nn.Sequential(nn.Linear(3, 2), nn.ReLU()).double()
        nn.init.constant_(model.get_parameter("0.bias"), 100.0)
        return model
    if kind == "again":
        layer = nn.Linear(3, 3)
        return nn.Sequential(layer, nn.Tanh(), layer).double()
    if kind == "twice":
        layer = nn.Linear(3, 3)
        return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(3, 2)).double()
    return nn.Sequential(nn.Tanh())


@pytest.mark.parametrize(
    ("model", "knobs", "message"),
    [
        (net(), {"subset": "first"}, "subset must be one of 'last', 'all', got 'first'"),
        (net(), {"structure": "low"}, "structure must be one of 'full', 'kron', 'diagonal', got"),
        (net(), {"prior": 0.0}, "prior must be > 0, got 0.0"),
        (net(), {"prior": "best"}, "prior must be one of 'evidence', got 'best'"),
        (net(), {"likelihood": "poisson"}, "likelihood must be one of 'gaussian', 'categorical',"),
        (net(), {"likelihood": "gaussian", "noise": 0}, "noise must be > 0, got 0"),
        (net(), {"y": R}, "y must be classes, integers of shape (11,), got torch.float64"),
        (net(), {"y": torch.full((11,), 2)}, "y must be classes from 0 to 1, got 2 to 2"),
        (net(), {"likelihood": "gaussian", "y": X}, "y must have shape (11, 2), got (11, 3)"),
        (net(), {"likelihood": "bernoulli", "y": R}, "entries of y must be between 0 and 1"),
        (odd("end"), {}, "model must end in a linear layer with outputs (n, k) for subset 'last'"),
        (odd("positive"), {}, "model must end in a linear layer with outputs (n, k) for subset"),
        (odd("again"), {}, "0 must be called once for subset 'last': use 'all'"),
        (odd("none"), {}, "model must have parameters, and it has none"),
        (odd("norm"), {"subset": "all"}, "structure must be 'full' or 'diagonal' where parameters"),
        (odd("twice"), {"subset": "all"}, "layers must be called once for structure 'kron', and"),
        (net(), {"structure": "full", "memory": 9}, "memory must be >= 4608 bytes for structure"),
    ],
)
def test_refusals(model, knobs, message):
    given: dict[str, Any] = {"likelihood": "categorical", "y": TARGETS["categorical"]} | knobs
    with pytest.raises(ValueError, match=re.escape(message)):
        laplace(model, X, given.pop("y"), **given)


def test_weights_that_moved_are_refused():
    model = net()
    found = laplace(model, X, R, likelihood="gaussian")
    with torch.no_grad():
        model.get_parameter("2.bias").add_(1)
    with pytest.raises(ValueError, match="model must have the weights that it had"):
        found.outputs(X)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.gpu
@pytest.mark.parametrize("subset", ["last", "all"])
@pytest.mark.parametrize("structure", ["full", "kron", "diagonal"])
def test_on_the_gpu(subset, structure):
    knobs: dict[str, Any] = {"likelihood": "categorical", "subset": subset, "structure": structure}
    y = TARGETS["categorical"]
    one = laplace(net(), X, y, **knobs)
    other = laplace(net().cuda(), X.cuda(), y.cuda(), **knobs)
    torch.testing.assert_close(other.outputs(X.cuda()).variance.cpu(), one.outputs(X).variance)
    assert other.sample(2, generator=torch.Generator("cuda")).is_cuda
    assert other.sample(2, generator=torch.Generator()).is_cuda
