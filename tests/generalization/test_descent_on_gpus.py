"""Double descent, memorisation and the Hessian test on a GPU are those on the CPU."""

import pytest
import torch

from vademecum.generalization import (
    bias_variance,
    classify_critical_point,
    double_descent,
    memorising_network,
    permute_pixels,
    random_labels,
)
from vademecum.models import mlp

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def sources() -> list[torch.Generator | None]:
    return [None, torch.Generator().manual_seed(0), torch.Generator("cuda").manual_seed(0)]


@CUDA
@pytest.mark.gpu
def test_the_same_training_sets_give_the_same_errors():
    beta = torch.linspace(2, 0.1, 30)
    here, there = (
        double_descent([0, 3, 12, 20, 30], b, n=10, noise=0.5, repeats=50,
                       generator=torch.Generator().manual_seed(0))
        for b in (beta, beta.cuda())
    )  # fmt: skip
    assert there.draws.is_cuda
    torch.testing.assert_close(there.draws.cpu(), here.draws, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(there.theory.cpu(), here.theory)
    for source in sources():
        found = double_descent([3], beta.cuda(), n=9, noise=0.5, repeats=2000, generator=source)
        off = (found.simulated - found.theory) / found.standard_error
        assert abs(float(off)) < 6


@CUDA
@pytest.mark.gpu
def test_sixty_thousand_images_on_the_gpu():
    x, y = torch.rand(60_000, 784, device="cuda"), torch.randint(10, (60_000,), device="cuda")
    for source in sources():
        net = memorising_network(x, y, generator=source)
        with torch.no_grad():
            assert (net(x) - y).abs().max() < 1e-3
    x[5] = x[50_000]
    with pytest.raises(ValueError, match="got rows 5 and 50000 that are equal"):
        memorising_network(x, y)


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("each", [False, True])
def test_corruptions_with_generators_of_both_kinds(each):
    x, y = torch.rand(50, 3, 4, 5, device="cuda"), torch.arange(50, device="cuda") % 7
    for source in sources():
        images, order = permute_pixels(x, each=each, generator=source)
        assert images.is_cuda
        assert order.sort(-1).values.cpu().equal(torch.arange(20).expand(order.shape))
        again = permute_pixels(x.cpu(), each=each, permutation=order.cpu()).images
        assert images.cpu().equal(again)
        labels, drawn = random_labels(y, fraction=0.4, generator=source)
        assert int(drawn.sum()) == 20
        assert labels[~drawn].equal(y[~drawn])


@CUDA
@pytest.mark.gpu
def test_parts_of_the_error():
    def ridge(X, y):
        w = torch.linalg.solve(X.T @ X + torch.eye(2).to(X), X.T @ y)
        return lambda x: x @ w

    X, at = torch.randn(12, 2).double(), torch.randn(3, 2).double()
    how = {"truth": lambda x: x[:, 0].sin(), "noise": 0.3}
    here = bias_variance(ridge, X, at, linear=True, **how)
    there = bias_variance(ridge, X.cuda(), at.cuda(), linear=True, **how)
    torch.testing.assert_close(there.error.cpu(), here.error)
    for source in sources():
        found = bias_variance(
            ridge, X.cuda(), at.cuda(), repeats=300, generator=source, **how
        )  # fmt: skip
        assert ((found.variance - there.variance).abs() < 6 * found.variance_error).all()


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("width", [4, 90])
def test_kinds_of_points(width):
    torch.manual_seed(0)
    model, x, y = mlp([3, width, 2], torch.nn.Tanh).double(), torch.randn(9, 3).double(), None
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    y = torch.randn(9, 2).double()
    y = y - y.mean(0)
    here = classify_critical_point(model, x, y)
    assert here.kind == "saddle"
    for source in sources():
        there = classify_critical_point(model.cuda(), x.cuda(), y.cuda(), generator=source)
        assert there.kind == "saddle"
        assert there.smallest == pytest.approx(here.smallest, rel=1e-2)
