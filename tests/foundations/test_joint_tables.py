"""Joint tables against loops over cells in fractions, autograd, and each other."""

import math
from fractions import Fraction
from itertools import permutations, product

import pytest
import torch

from vademecum.foundations.joint_tables import (
    bayes_posterior,
    conditional,
    is_independent,
    marginal,
)

DTYPES = [torch.float32, torch.float64]


def random_joint(*shape: int, batch: int = 0, dtype: torch.dtype = torch.float64):
    weights = torch.rand(shape, dtype=dtype) + 0.01
    return weights / weights.sum(tuple(range(batch, len(shape))), keepdim=True)


def add_up(joint: torch.Tensor, keep: tuple[int, ...]) -> torch.Tensor:
    """The marginal, a cell at a time."""
    out = torch.zeros([joint.shape[v] for v in keep], dtype=joint.dtype)
    for cell in product(*map(range, joint.shape)):
        out[tuple(cell[v] for v in keep)] += joint[cell]
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_marginal_adds_up_cells(dtype, k):
    joint = random_joint(2, 3, 4, dtype=dtype)
    for keep in permutations(range(3), k):
        measured = marginal(joint, keep)
        assert measured.dtype == dtype
        torch.testing.assert_close(measured, add_up(joint, keep))


def test_batches_are_tables_of_their_own():
    joint = random_joint(5, 2, 3, 2, 4, batch=2)
    for keep, given in ((0, 2), ((2, 1), 0), (1, (0, 2))):
        law = marginal(joint, keep, batch_dims=2)
        table = conditional(joint, keep, given, batch_dims=2)
        verdict = is_independent(joint, keep, given, batch_dims=2)
        assert verdict.shape == (5, 2)
        for i, j in product(range(5), range(2)):
            torch.testing.assert_close(law[i, j], marginal(joint[i, j], keep))
            torch.testing.assert_close(table[i, j], conditional(joint[i, j], keep, given))


def test_conditional_in_fractions():
    counts = torch.tensor([[[1, 2], [0, 3]], [[4, 0], [5, 1]], [[2, 2], [1, 3]]])
    table = conditional(counts / counts.sum(), (2, 0), given=1)
    for x, y, z in product(range(3), range(2), range(2)):
        exact = Fraction(int(counts[x, y, z]), int(counts[:, y].sum()))
        assert table[z, x, y].item() == pytest.approx(float(exact))
    summed = conditional(counts / counts.sum(), 0, given=2)
    torch.testing.assert_close(summed.sum(0), torch.ones(2))
    assert summed[1, 0].item() == pytest.approx(9 / 13)


def test_values_of_probability_zero_are_refused_and_may_be_dropped():
    joint = torch.tensor([[0.5, 0.0, 0.25], [0.0, 0.0, 0.25]])
    with pytest.raises(ValueError, match=r"given must have a probability > 0, got 0 at \(1,\)"):
        conditional(joint, 0, given=1)
    kept = joint[:, marginal(joint, 1) > 0]
    torch.testing.assert_close(conditional(kept, 0, given=1)[:, 1], torch.tensor([0.5, 0.5]))
    two = torch.stack([random_joint(2, 3).float(), joint])
    with pytest.raises(ValueError, match=r"got 0 at \(1, 1\)"):
        conditional(two, 0, given=1, batch_dims=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_posterior_is_a_column_of_the_conditional(dtype):
    joint = random_joint(6, 4, 3, batch=1, dtype=dtype)
    prior = marginal(joint, 0, batch_dims=1)
    likelihood = conditional(joint, 1, given=0, batch_dims=1)  # (6, 3, 4)
    posterior = bayes_posterior(prior[:, None], likelihood)
    expected = conditional(joint, 0, given=1, batch_dims=1).mT
    assert posterior.dtype == dtype
    torch.testing.assert_close(posterior, expected)


def test_posterior_of_densities_that_would_underflow():
    prior = torch.tensor([0.5, 0.25, 0.25, 0.0])
    tiny = 1e-38 * torch.tensor([1.0, 2.0, 0.0, 3.0])
    assert bayes_posterior(prior, tiny).tolist() == pytest.approx([0.5, 0.5, 0.0, 0.0])
    wide = torch.tensor([1e-30, 1e-30, 0.0, 1e38])  # the impossible one is by far the likeliest
    assert bayes_posterior(prior, wide).tolist() == pytest.approx([2 / 3, 1 / 3, 0.0, 0.0])
    huge = 1e38 * torch.tensor([1.0, 2.0, 3.0, 3.0])
    assert bayes_posterior(prior, huge).tolist() == pytest.approx([2 / 7, 2 / 7, 3 / 7, 0.0])


def test_gradients():
    z = torch.randn(4, dtype=torch.float64, requires_grad=True)
    likelihood = torch.rand(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z, p: bayes_posterior(z.softmax(0), p), (z, likelihood))
    w = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda w: conditional(w.flatten().softmax(0).view(2, 3, 2), 2, given=0), w
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_independence_of_products_survives_rounding(dtype):
    for sizes in ((2, 3), (30, 40), (1, 5)):
        p, q = (random_joint(50, size, batch=1, dtype=dtype) for size in sizes)
        outer = p[:, :, None] * q[:, None]
        outer = outer / outer.sum((1, 2), keepdim=True)
        assert is_independent(outer, 0, 1, batch_dims=1).all()
    outer = random_joint(2, dtype=dtype)[:, None] * random_joint(3, dtype=dtype)
    outer = outer / outer.sum()
    outer[:, 1:] += 100 * torch.finfo(dtype).eps * torch.tensor([[1, -1], [-1, 1]])
    assert not is_independent(outer, 0, 1)


def test_conditional_independence_of_groups_and_rare_values():
    p_z, p_x, p_y = random_joint(3), random_joint(3, 2, 2, batch=1), random_joint(3, 4, batch=1)
    joint = torch.einsum("z,zab,zy->abyz", p_z, p_x, p_y)
    assert is_independent(joint, (0, 1), 2, given=3)
    assert is_independent(joint, 2, (1, 0), given=3)
    assert is_independent(joint, 0, 2, given=(3, 1))
    assert not is_independent(joint, 0, 2)
    assert not is_independent(joint, 0, 1, given=3)
    rare = joint.clone()
    rare[..., 0] = 0.0
    rare = rare / rare.sum()
    assert is_independent(rare, (0, 1), 2, given=3)  # nothing is asked of an impossible z
    rare[0, 0, 0, 0] = rare[1, 1, 1, 0] = 1e-30
    assert not is_independent(rare, (0, 1), 2, given=3)


def test_tolerance_is_the_largest_difference_of_an_event():
    joint = torch.tensor([[0.5, 0.25], [0.125, 0.125]])
    gap = joint - joint.sum(1, keepdim=True) * joint.sum(0)
    events = torch.cartesian_prod(*[torch.arange(2.0)] * 4).view(-1, 2, 2)
    worst = (events * gap).sum((1, 2)).abs().max().item()
    assert worst == 0.0625
    assert is_independent(joint, 0, 1, tol=worst)
    assert not is_independent(joint, 0, 1, tol=worst - 1e-6)


J, P = torch.full((2, 2), 0.25), torch.tensor([0.5, 0.5])
LIKELY = torch.ones(2)
ERRORS = [
    (marginal, (J * 2, 0), {}, "joint must sum to one"),
    (marginal, (torch.tensor([[1.5, -0.5]]), 0), {}, "entries of joint must be >= 0, got -0.5"),
    (marginal, (J * math.nan, 0), {}, "joint must be finite, got nan"),
    (marginal, (torch.eye(2).long(), 0), {}, "joint must be floating point"),
    (marginal, (torch.zeros(0, 2), 0), {}, "joint must not be empty"),
    (marginal, (J.tolist(), 0), {}, "joint must be a tensor, got list"),
    (marginal, (J, 2), {}, "keep must be <= 1, got 2"),
    (marginal, (J, -1), {}, "keep must be >= 0, got -1"),
    (marginal, (J, 0.5), {}, "keep must be an integer, got 0.5"),
    (marginal, (J, ()), {}, r"keep must hold variables, each named only once, got \(\)"),
    (marginal, (J, (0, 0)), {}, r"keep must hold variables, each named only once, got \(0, 0\)"),
    (marginal, (J, 0), {"batch_dims": 2}, r"joint must have more than 2 axes, got shape \(2, 2\)"),
    (marginal, (J, 0), {"batch_dims": -1}, "batch_dims must be >= 0, got -1"),
    (marginal, (J, 0), {"batch_dims": 1}, "joint must sum to one"),
    (conditional, (J, 0, 0), {}, "given must hold variables, each named only once, got 0"),
    (conditional, (J, 0, 5), {}, "given must be <= 1, got 5"),
    (is_independent, (J, 0, (0, 1)), {}, "second must hold variables, each named only once"),
    (is_independent, (J, 0, 1, 1), {}, "given must hold variables, each named only once, got 1"),
    (is_independent, (J, 0, 1), {"tol": -1.0}, "tol must be >= 0, got -1.0"),
    (is_independent, (J, 0, 1), {"tol": math.nan}, "tol must be"),
    (bayes_posterior, (P / 2, LIKELY), {}, "prior must sum to one"),
    (bayes_posterior, (P, -LIKELY), {}, "likelihood must be >= 0, got -1"),
    (bayes_posterior, (P, LIKELY * math.inf), {}, "likelihood must be finite, got inf"),
    (bayes_posterior, (P, torch.ones(3)), {}, "likelihood must be 2 wide"),
    (bayes_posterior, (P, LIKELY.double()), {}, "likelihood must be torch.float32 on cpu like"),
    (bayes_posterior, (P, LIKELY + 0j), {}, "likelihood must be real, got torch.complex64"),
    (bayes_posterior, (P, LIKELY.long()), {}, "likelihood must be floating point"),
    (bayes_posterior, (P.expand(2, 2), LIKELY.expand(3, 2)), {}, "batch shapes must broadcast"),
    (bayes_posterior, (P, 0 * LIKELY), {}, r"likelihood must be > 0 where prior is, somewhere"),
    (bayes_posterior, (torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])), {}, "got none at"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("function", "arguments", "knobs", "message"), ERRORS)
def test_errors(function, arguments, knobs, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments, **knobs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda(dtype):
    joint = random_joint(2, 3, 4, dtype=dtype)
    here, there = (conditional(t, 0, given=2) for t in (joint, joint.cuda()))
    torch.testing.assert_close(there.cpu(), here)
    assert there.is_cuda
    assert not is_independent(joint.cuda(), 0, 1, given=2)
    posterior = bayes_posterior(marginal(joint, 2), joint[0, 0])
    torch.testing.assert_close(
        bayes_posterior(marginal(joint.cuda(), 2), joint[0, 0].cuda()).cpu(), posterior
    )
