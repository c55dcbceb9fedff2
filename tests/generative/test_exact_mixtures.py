"""The exact predictor of Gaussian mixtures, against torch's distributions and autograd."""

# pyright: reportPossiblyUnboundVariable=false

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal, kl_divergence

from vademecum.generative import VESDE, VPSDE, MixtureScore
from vademecum.generative._marginals import Marginal

F64 = torch.float64
PROCESSES = [VPSDE(), VESDE(sigma_min=0.1, sigma_max=7.0)]
KINDS = ("noise", "x0", "v", "score")


def law(d: int = 3, dtype: torch.dtype = F64) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, means and full covariances of four components."""
    dice = torch.Generator().manual_seed(3)
    root = torch.randn(4, d, d, dtype=F64, generator=dice)
    weights = torch.tensor([0.1, 0.4, 0.3, 0.2], dtype=F64)
    means = 2 * torch.randn(4, d, dtype=F64, generator=dice)
    covariances = root @ root.mT + 0.1 * torch.eye(d, dtype=F64)
    return weights.to(dtype), means.to(dtype), covariances.to(dtype)


def noised(
    weights: Tensor, means: Tensor, covariances: Tensor, level: Marginal
) -> MixtureSameFamily:
    """The law at every example's own level, by torch."""
    s, e = (v.reshape(-1, 1, 1) for v in level)
    spread = s[..., None] ** 2 * covariances + e[..., None] ** 2 * torch.eye(means.shape[1])
    return MixtureSameFamily(Categorical(weights), MultivariateNormal(s * means, spread))


def full(kind: str, given: Tensor, d: int) -> Tensor:
    if kind == "numbers":
        return given[:, None, None] * torch.eye(d, dtype=F64)
    return torch.diag_embed(given) if kind == "diagonals" else given


@pytest.mark.parametrize("process", PROCESSES, ids=["vp", "ve"])
@pytest.mark.parametrize("kind", ["numbers", "diagonals", "matrices"])
def test_mixture_score_against_autograd_of_torchs_log_density(process, kind):
    weights, means, matrices = law()
    given = {"numbers": matrices[:, 0, 0], "diagonals": matrices.diagonal(dim1=1, dim2=2)}
    given = given.get(kind, matrices)
    x, t = 3 * torch.randn(6, 3, dtype=F64), torch.rand(6, dtype=F64) * 0.9 + 0.05
    level = process.marginal(t)
    truth = noised(weights, means, full(kind, given, 3), level)
    at = x.clone().requires_grad_()
    wanted = truth.log_prob(at)
    (score,) = torch.autograd.grad(wanted.sum(), at)
    s, e = (v[:, None] for v in level)
    noise = -e * score
    clean = (x - e * noise) / s
    answers = {"score": score, "noise": noise, "x0": clean, "v": s * noise - e * clean}
    for predicts in KINDS:
        exact = MixtureScore(weights, means, given, process=process, predicts=predicts)
        torch.testing.assert_close(exact(x, t), answers[predicts], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(exact.log_prob(x, t=t), wanted.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(exact.score(x, t), score, rtol=1e-9, atol=1e-9)
    one = exact.log_prob(x, t=0.5)
    torch.testing.assert_close(one, exact.log_prob(x, t=torch.full((6,), 0.5, dtype=F64)))
    torch.testing.assert_close(exact(x, t[:1].expand(6)), exact(x, t[:1].repeat(6)))


def test_mixture_score_is_exact_at_both_ends_of_time():
    class Ends:
        def marginal(self, t: Tensor) -> Marginal:
            return Marginal((t == 0).double(), (t == 1).double())

    weights, means, matrices = law()
    x = torch.randn(5, 3, dtype=F64)
    clean, noise = torch.zeros(5), torch.ones(5)
    found = {
        kind: MixtureScore(weights, means, matrices, process=Ends(), predicts=kind)
        for kind in KINDS
    }
    mean = (weights @ means).expand(5, 3)
    torch.testing.assert_close(found["x0"](x, clean), x)
    torch.testing.assert_close(found["noise"](x, clean), torch.zeros_like(x))
    torch.testing.assert_close(found["v"](x, clean), torch.zeros_like(x))
    torch.testing.assert_close(found["x0"](x, noise), mean)
    torch.testing.assert_close(found["noise"](x, noise), x)
    torch.testing.assert_close(found["v"](x, noise), -mean)
    truth = MixtureSameFamily(Categorical(weights), MultivariateNormal(means, matrices))
    torch.testing.assert_close(found["x0"].log_prob(x), truth.log_prob(x))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_far_from_all_modes_the_nearest_one_pulls(dtype):
    weights, means = torch.tensor([0.5, 0.5], dtype=dtype), torch.tensor([[-1.0], [1.0]])
    exact = MixtureScore(weights, means.to(dtype), torch.ones(2, dtype=dtype), process=VPSDE())
    far = torch.tensor([[1e3], [1e10], [1e25], [-1e25]], dtype=dtype)
    wanted = far.sign() - far
    torch.testing.assert_close(exact.score(far), wanted)
    wide = MixtureScore(
        weights, means.to(dtype), torch.tensor([1.0, 4.0], dtype=dtype), process=VPSDE()
    )
    torch.testing.assert_close(wide.score(far), (1 - far) / 4)  # the wider one has the tails
    assert exact.log_prob(far[:1]).isfinite().all()


def test_context_chooses_the_component_and_minus_one_none():
    weights, means, matrices = law()
    exact = MixtureScore(weights, means, matrices, process=VPSDE(), predicts="score")
    x, t = torch.randn(3, 3, dtype=F64), torch.full((3,), 0.3, dtype=F64)
    which = torch.tensor([2, -1, 0])
    found, density = exact(x, t, which), exact.log_prob(x, which, t=t)
    for i, k in enumerate(which.tolist()):
        one = slice(i, i + 1)
        part = slice(k, k + 1) if k >= 0 else slice(None)
        alone = MixtureScore(
            weights[part] / weights[part].sum(), means[part], matrices[part], process=VPSDE(),
            predicts="score",
        )  # fmt: skip
        torch.testing.assert_close(found[one], alone(x[one], t[one]))
        torch.testing.assert_close(density[one], alone.log_prob(x[one], t=t[one]))
    none = torch.tensor([0.0, 1.0], dtype=F64)  # a component without weight is no obstacle
    empty = MixtureScore(none, means[:2], matrices[:2], process=VPSDE(), predicts="score")
    torch.testing.assert_close(empty(x, t), exact(x, t, torch.ones(3, dtype=torch.long)))
    torch.testing.assert_close(empty(x, t, 0 * which.abs()), exact(x, t, 0 * which.abs()))


def test_samples_have_the_moments_of_the_mixture():
    weights, means, matrices = law()
    exact = MixtureScore(weights, means, matrices, process=VPSDE())
    n = 20_000
    x = exact.sample(n, generator=torch.Generator().manual_seed(0))
    mean = weights @ means
    second = torch.einsum("k,kij->ij", weights, matrices + means[:, :, None] * means[:, None])
    assert (x.mean(0) - mean).abs().max() < 6 * float(second.diagonal().max() / n) ** 0.5
    products = x[:, :, None] * x[:, None]
    error = products.std(0) / n**0.5
    assert ((products.mean(0) - second).abs() < 6 * error).all()
    which = torch.tensor([1, 3]).repeat_interleave(n // 2)
    parts = exact.sample(n, which, generator=torch.Generator().manual_seed(0)).reshape(2, -1, 3)
    for part, k in zip(parts, (1, 3), strict=True):
        truth = MultivariateNormal(means[k], matrices[k])
        found = MultivariateNormal(part.mean(0), part.T.cov())
        assert kl_divergence(found, truth) < 30 / n  # 9 parameters: 9 / n in the mean, chi-square
    assert exact.sample(0).shape == (0, 3)
    free = exact.sample(n, torch.full((n,), -1), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(free, x)


def test_portions_and_shapes_of_images(monkeypatch):
    import vademecum.generative.exact_mixtures as home

    weights, means, matrices = law(4)
    exact = MixtureScore(weights, means, matrices, process=VPSDE(), predicts="v")
    images = MixtureScore(
        weights, means.reshape(4, 1, 2, 2), matrices, process=VPSDE(), predicts="v"
    )
    plain = MixtureScore(
        weights, means.reshape(4, 1, 2, 2), torch.ones(4, 1, 2, 2, dtype=F64), process=VPSDE()
    )
    x, t = torch.randn(7, 4, dtype=F64), torch.rand(7, dtype=F64)
    which = torch.tensor([0, 1, 2, 3, -1, -1, 2])
    whole = [exact(x, t), exact(x, t[:1]), exact.log_prob(x, t=t), exact(x, t, which)]
    monkeypatch.setattr(home, "_ENTRIES", {"cpu": 33, "other": 33})  # two examples at a time
    pieces = [exact(x, t), exact(x, t[:1]), exact.log_prob(x, t=t), exact(x, t, which)]
    for a, b in zip(whole, pieces, strict=True):
        torch.testing.assert_close(a, b)
    pictures = x.reshape(7, 1, 2, 2)
    torch.testing.assert_close(images(pictures, t), whole[0].reshape(7, 1, 2, 2))
    torch.testing.assert_close(plain.log_prob(pictures), MixtureScore(
        weights, means, torch.ones(4, dtype=F64), process=VPSDE()).log_prob(x))  # fmt: skip
    assert images.sample(3).shape == (3, 1, 2, 2)
    assert exact(x[:0], t[:0]).shape == (0, 4)


def test_single_precision_of_input_or_law():
    weights, means, matrices = law()
    wide = MixtureScore(weights, means, matrices, process=VPSDE(), predicts="score")
    narrow = MixtureScore(*law(dtype=torch.float32), process=VPSDE(), predicts="score")
    x, t = torch.randn(6, 3), torch.rand(6)
    wanted = wide(x.double(), t.double())
    assert wide(x, t).dtype == narrow(x, t).dtype == torch.float32
    assert narrow(x.double(), t).dtype == F64
    torch.testing.assert_close(wide(x, t).double(), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(narrow(x, t).double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": torch.tensor([0.5, 0.6])}, "weights must sum to one"),
        ({"weights": torch.ones(1)}, r"means must be \(k, \*shape\) for weights \(k,\)"),
        ({"means": torch.tensor([[0.0, math.nan], [0, 0]])}, "means must be finite, got nan"),
        ({"covariances": torch.tensor([1.0, 0.0])}, "positive definite, got an eigenvalue of 0"),
        ({"covariances": torch.tensor([1.0, -2.0])}, "an eigenvalue of -2 in component 1"),
        ({"covariances": torch.ones(2, 2, 2)}, "covariances must be positive definite"),
        ({"covariances": torch.eye(2).repeat(2, 1, 1) + torch.ones(2).diag(1)[:2, :2]},
         "covariances must be symmetric"),
        ({"covariances": torch.ones(2, 3)}, r"covariances must be \(2,\), \(2, 2\) or"),
        ({"predicts": "x1"}, "predicts must be one of"),
    ],
)  # fmt: skip
def test_bad_mixtures_are_refused(change, message, unchecked):
    given = {
        "weights": torch.tensor([0.5, 0.5]), "means": torch.zeros(2, 2),
        "covariances": torch.ones(2), "predicts": "noise",
    }  # fmt: skip
    given |= change
    order = [given[name] for name in ("weights", "means", "covariances")]
    with pytest.raises(ValueError, match=message):
        MixtureScore(*order, process=VPSDE(), predicts=given["predicts"])


def test_bad_inputs_are_refused(unchecked):
    exact = MixtureScore(*law(), process=VPSDE())
    x, t = torch.zeros(2, 3), torch.zeros(2)
    with pytest.raises(ValueError, match=r"x must be floating point of shape \(n, 3\)"):
        exact(x[:, :2], t)
    with pytest.raises(ValueError, match="t must be one time or 2, got shape"):
        exact(x, torch.zeros(3))
    with pytest.raises(ValueError, match="context must be 2 integers"):
        exact(x, t, torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="context must be below 4, the components, got 4"):
        exact(x, t, torch.tensor([4, 0]))


@pytest.mark.gpu
def test_mixture_score_on_a_gpu():
    exact = MixtureScore(*law(), process=VPSDE(), predicts="v")
    x, t = torch.randn(9, 3, dtype=F64), torch.rand(9, dtype=F64)
    wanted = exact(x, t), exact.log_prob(x, t=t)
    there = exact.cuda()
    torch.testing.assert_close(there(x.cuda(), t.cuda()).cpu(), wanted[0])
    torch.testing.assert_close(there.log_prob(x.cuda(), t=t.cuda()).cpu(), wanted[1])
    assert there.sample(4, generator=torch.Generator().manual_seed(0)).is_cuda
    with pytest.raises(ValueError, match="x must be on cuda"):
        there(x, t)
