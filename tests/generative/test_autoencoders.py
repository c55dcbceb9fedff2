"""Autoencoders: their terms against Jacobians and differences, and what they refuse."""

import math

import pytest
import torch
from torch import nn

from vademecum.generative import Autoencoder
from vademecum.gradients import jacobian
from vademecum.linear import LinearAutoencoder
from vademecum.models import mlp
from vademecum.testing import check_part


def test_the_terms_are_those_of_the_formula():
    encoder, decoder = mlp([4, 6, 3], nn.Tanh).double(), mlp([3, 5, 4], nn.Tanh).double()
    model = Autoencoder(encoder, decoder, contractive=0.3, sparse=0.7)
    x = torch.randn(5, 4).double()
    terms = model.terms(x)
    J = jacobian(encoder, x, wrt="x").blocks()
    torch.testing.assert_close(terms.contraction, J.square().sum((1, 2)))
    torch.testing.assert_close(terms.reconstruction, (x - decoder(encoder(x))).square().sum(1))
    torch.testing.assert_close(terms.sparsity, encoder(x).abs().sum(1))
    each = terms.reconstruction + 0.3 * terms.contraction + 0.7 * terms.sparsity
    torch.testing.assert_close(model.loss(x), each.mean())
    with torch.no_grad():
        torch.testing.assert_close(model.loss(x), each.mean())
    torch.testing.assert_close(model(x), decoder(encoder(x)))


def test_terms_without_weight_are_zero():
    model = Autoencoder(nn.Linear(4, 2), nn.Linear(2, 4))
    terms = model.terms(torch.randn(3, 4))
    assert not terms.contraction.any()
    assert not terms.sparsity.any()


def test_gradients_of_the_loss_are_those_of_differences():
    """In all parameters, through the Jacobian."""
    model = Autoencoder(
        mlp([3, 4, 2], nn.Tanh).double(), nn.Linear(2, 3).double(), contractive=0.5, sparse=0.2
    )
    x = torch.randn(4, 3).double()
    names, values = zip(*model.named_parameters(), strict=True)

    def loss(*theta):
        """As `loss`, with other parameters."""
        functional = torch.func.functional_call
        holder = nn.Module()
        holder.model = model
        holder.forward = lambda x: model.loss(x)
        return functional(
            holder, {f"model.{n}": t for n, t in zip(names, theta, strict=True)}, (x,)
        )

    assert torch.autograd.gradcheck(loss, values)


def test_convolutions_contract_too():
    encoder = nn.Sequential(nn.Conv2d(2, 3, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(27, 4))
    decoder = nn.Sequential(nn.Linear(4, 98), nn.Unflatten(1, (2, 7, 7)))
    model = Autoencoder(encoder, decoder, contractive=1.0).double()
    x = torch.randn(3, 2, 7, 7).double()
    J = jacobian(encoder, x, wrt="x").blocks()
    torch.testing.assert_close(model.terms(x).contraction, J.square().sum((1, 2)))
    model.loss(x).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_noise_comes_in_training_mode_alone():
    """With identities the reconstruction is the squared noise itself."""
    x = torch.full((20_000, 3), 2.0)
    loud = Autoencoder(nn.Identity(), nn.Identity(), denoising=0.5)
    found = loud.terms(x).reconstruction
    error = found.std() / len(found) ** 0.5
    assert abs(found.mean() - 3 * 0.25) < 5 * error
    masked = Autoencoder(nn.Identity(), nn.Identity(), denoising=0.3, corruption="masking")
    lost = masked.terms(x).reconstruction / 4
    assert set(lost.unique().tolist()) == {0.0, 1.0, 2.0, 3.0}
    assert abs(lost.mean() - 0.9) < 5 * lost.std() / len(lost) ** 0.5
    for model in (loud, masked):
        a, b = (model.loss(x, generator=torch.Generator().manual_seed(4)) for _ in range(2))
        assert a == b
        assert a > 0
        assert model.eval().loss(x) == 0
        assert torch.equal(model(x), x)


def test_a_linear_one_is_that_of_the_room_of_linear_models():
    x = torch.randn(30, 5).double() * torch.arange(1.0, 6.0)
    best = LinearAutoencoder(5, 2).double().set_optimum(x)
    encoder, decoder = nn.Linear(5, 2, bias=False).double(), nn.Linear(2, 5, bias=False).double()
    with torch.no_grad():
        encoder.weight.copy_(best.C)
        decoder.weight.copy_(best.D)
    torch.testing.assert_close(Autoencoder(encoder, decoder).loss(x), 2 * best.loss(x))
    values = torch.linalg.svdvals(x)
    torch.testing.assert_close(2 * best.loss(x), values[2:].square().sum() / 30)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"denoising": -0.1}, "denoising must be >= 0, got -0.1"),
        ({"denoising": 1.5, "corruption": "masking"}, "denoising must be <= 1, got 1.5"),
        ({"corruption": "salt"}, "corruption must be one of 'gaussian', 'masking', got 'salt'"),
        ({"contractive": -1.0}, "contractive must be >= 0"),
        ({"sparse": math.nan}, "sparse must be"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Autoencoder(nn.Linear(3, 2), nn.Linear(2, 3), **options)


X = torch.randn(4, 3)


@pytest.mark.parametrize(
    ("model", "x", "message"),
    [
        (Autoencoder(nn.Linear(3, 2), nn.Linear(2, 1)), X, r"shape of x, \(4, 3\), got \(4, 1\)"),
        (Autoencoder(nn.Flatten(0), nn.Identity()), X, r"each of 4 examples, got \(12,\)"),
        (Autoencoder(nn.Linear(3, 2), nn.Linear(2, 3)), X.long(), "x must be floating point"),
        (Autoencoder(nn.Linear(3, 2), nn.Linear(2, 3)), X[:0], "x must not be empty"),
        (Autoencoder(nn.Linear(3, 2), nn.Linear(2, 3)), X / 0, "x must be finite, got -?inf at"),
        (
            Autoencoder(nn.BatchNorm1d(3), nn.Identity(), contractive=1.0), X,
            "contractive must be 0 for an encoder with BatchNorm1d .* in training mode",
        ),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_refused(model, x, message):
    with pytest.raises(ValueError, match=message):
        model.loss(x)


def test_batch_normalisation_in_evaluation_mode_contracts():
    model = Autoencoder(nn.BatchNorm1d(3), nn.Identity(), contractive=1.0).eval()
    torch.testing.assert_close(model.terms(X).contraction, torch.full((4,), 3 / (1 + 1e-5)))


def test_a_loss_that_is_no_number_names_its_term():
    class Scale(nn.Module):
        def __init__(self, by):
            super().__init__()
            self.by = by

        def forward(self, x):
            return self.by * x

    for by, options, term in (
        (math.nan, {}, "reconstruction term is nan"),
        (1e30, {"contractive": 1.0}, "contraction term is inf"),
    ):
        model = Autoencoder(Scale(by), Scale(1 / by), contractive=options.get("contractive", 0.0))
        with pytest.raises(ValueError, match=term):
            model.loss(X)


@pytest.mark.parametrize("options", [{}, {"denoising": 0.3, "contractive": 0.1, "sparse": 0.1}])
def test_laws_of_parts(options):
    check_part(Autoencoder(mlp([5, 4, 2], nn.Tanh), mlp([2, 4, 5], nn.Tanh), **options),
               torch.randn(4, 5))  # fmt: skip


def test_sums_of_half_precision_keep_their_digits():
    """A thousand squares and sizes of what modules of half precision return."""
    model = Autoencoder(nn.Identity(), nn.Tanh(), contractive=1.0, sparse=1.0)
    x = torch.randn(2, 1000).bfloat16()
    terms, decoded = model.terms(x), x.tanh().double()
    wanted = (x.double() - decoded).square().sum(1), x.double().abs().sum(1)
    for found, exact in zip((terms.reconstruction, terms.sparsity), wanted, strict=True):
        torch.testing.assert_close(found, exact.float(), rtol=1e-5, atol=0)
    assert terms.contraction.tolist() == [1000.0, 1000.0]


@pytest.mark.gpu
def test_on_a_gpu():
    model = Autoencoder(mlp([5, 4, 2], nn.Tanh), mlp([2, 4, 5]), contractive=0.3, sparse=0.1)
    model, x = model.double(), torch.randn(6, 5).double()
    here = model.loss(x)
    torch.testing.assert_close(model.cuda().loss(x.cuda()).cpu(), here)
