"""What a variational autoencoder refuses, by name, and numbers near the ends of the range."""

import math

import pytest
import torch
from torch import nn

from vademecum.generative import VAE
from vademecum.models import mlp
from vademecum.testing import check_part


def plain(**options) -> VAE:
    return VAE(nn.Linear(3, 4), nn.Linear(2, 3), **options)


X = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])


class Returns(nn.Module):
    """A module that returns what it was told to."""

    def __init__(self, what):
        super().__init__()
        self.what = what

    def forward(self, x):
        return self.what


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"likelihood": "poisson"}, "likelihood must be one of 'gaussian', .*, got 'poisson'"),
        ({"beta": -1.0}, "beta must be >= 0, got -1"),
        ({"noise": 0.0}, "noise must be > 0, got 0"),
        ({"noise": "unknown"}, "noise must be a number, 'learned' or 'predicted', got 'unknown'"),
        ({"noise": 0.1, "likelihood": "bernoulli"}, "noise is that of the Gaussian .*, got 0.1"),
        ({"grey": True}, "grey values are a matter of the Bernoulli likelihood"),
        ({"latent": 0}, "latent must be >= 1, got 0"),
        ({"latent": 2.5}, "latent must be an integer, got 2.5"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        plain(**options)


def test_continuous_data_for_bits_are_refused():
    vae = plain(likelihood="bernoulli")
    outside, inside = X.clone(), X.clone()
    outside[1, 2], inside[0, 1] = 1.5, 0.25
    calls = (vae.loss, vae.elbo, lambda x: vae.iwae_bound(x, 2), vae.log_prob)
    for call in calls:
        with pytest.raises(ValueError, match=r"entries of x must be 0 or 1 for a Bernoulli .*got 0"
                           r".25 at \(0, 1\): it is a law of bits. Draw them"):  # fmt: skip
            call(inside)
        with pytest.raises(ValueError, match=r"x must be 0 or 1 .*got 1.5 at \(1, 2\)"):
            call(outside)
        with pytest.raises(ValueError, match=r"x must be 0 or 1 .*got -0.25 at \(0, 1\)"):
            call(-inside)
        with pytest.raises(ValueError, match=r"x must be finite, got nan at \(0, 1\)"):
            call(torch.where(inside == 0.25, math.nan, inside))


def test_grey_values_mean_the_average_over_random_bits():
    vae, x = plain(likelihood="bernoulli", grey=True), torch.rand(1, 3)
    found = vae.elbo(x, generator=torch.Generator().manual_seed(0))
    bits = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3)
    p = torch.where(bits == 1, x, 1 - x).prod(1)
    z = torch.randn(1, 2, generator=torch.Generator().manual_seed(0))
    mean, log_variance = vae.encoder(x).chunk(2, 1)
    logits = vae.decoder(mean + (log_variance / 2).exp() * z)
    each = torch.distributions.Bernoulli(logits=logits).log_prob(bits).sum(1)
    torch.testing.assert_close(found.reconstruction[0], (p * each).sum())
    for call in (lambda x: vae.iwae_bound(x, 2), vae.log_prob):
        with pytest.raises(ValueError, match="grey values have a bound, `elbo`, and no probab"):
            call(x)
        call(X)
    with pytest.raises(ValueError, match=r"x must be between 0 and 1 .* is the probability of a o"):
        vae.loss(x + 1)


@pytest.mark.parametrize(
    ("likelihood", "x", "message"),
    [
        ("gaussian", X.long(), "x must be floating point for a gaussian likelihood, got torch.int"),
        ("bernoulli", X.bool(), "x must be floating point for a bernoulli likelihood, got torch.b"),
        ("categorical", X, "x must be integers for a categorical likelihood, got torch.float32"),
        ("gaussian", X[:0], r"x must be a tensor of one or more examples, got shape \(0, 3\)"),
        ("gaussian", [1.0], "x must be a tensor of one or more examples, got list"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_examples_of_another_kind_are_refused(likelihood, x, message):
    with pytest.raises(ValueError, match=message):
        plain(likelihood=likelihood).loss(x)


@pytest.mark.parametrize(
    ("encoder", "decoder", "message"),
    [
        (
            nn.Linear(3, 3),
            nn.Linear(2, 3),
            r"encoder must return a mean and a .* got shape \(2, 3\)",
        ),
        (
            Returns((X, X[:1])),
            nn.Linear(3, 3),
            r"encoder must .* got shapes \[\(2, 3\), \(1, 3\)\]",
        ),
        (Returns((X, X, X)), nn.Linear(3, 3), "encoder must return a mean and a log-variance"),
        (Returns(None), nn.Linear(3, 3), "encoder must return .*, got NoneType"),
        (Returns(torch.zeros(5, 4)), nn.Linear(2, 3), "encoder must return 2 rows, .*, got 5"),
        (nn.Linear(3, 4), nn.Linear(2, 1), r"must return the shape of x, \(2, 3\), got \(2, 1\)"),
        (nn.Linear(3, 4), Returns((X, X)), "decoder must return a tensor, got tuple"),
    ],
)
def test_modules_that_return_something_else_are_refused(encoder, decoder, message):
    with pytest.raises(ValueError, match=message):
        VAE(encoder, decoder).loss(X)


def test_an_encoder_may_return_two_tensors():
    net = nn.Linear(3, 4)
    other = nn.Module()
    other.net = net
    other.forward = lambda x: net(x).chunk(2, 1)
    one, two = (VAE(encoder, nn.Linear(2, 3)) for encoder in (net, other))
    two.decoder = one.decoder
    found = [v.loss(X, generator=torch.Generator().manual_seed(0)) for v in (one, two)]
    assert torch.equal(*found)


def test_labels_out_of_range_are_refused():
    decoder = nn.Sequential(nn.Linear(2, 12), nn.Unflatten(1, (4, 3)))
    vae = VAE(nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 4)), decoder,
              likelihood="categorical")  # fmt: skip
    x = torch.tensor([[0, 3, 1]])
    assert vae.loss(x).isfinite()
    with pytest.raises(ValueError, match=r"x must be labels below 4, the classes of the .*, got 4"):
        vae.loss(x + 1)
    vae.encoder = Returns(torch.zeros(1, 4))
    with pytest.raises(ValueError, match="x must be labels from 0 on, got -1"):
        vae.loss(x - 1)
    with pytest.raises(ValueError, match=r"logits of shape \(1, classes, 2\), got \(1, 4, 3\)"):
        vae.loss(x[:, :2])


@pytest.mark.parametrize(
    ("code", "decoded", "message"),
    [
        (
            (math.nan, 0.0),
            0.0,
            "the KL term is nan for example 0: the mean that the encoder .* nan",
        ),
        ((0.0, math.nan), 0.0, "the KL term is nan .*: the log-variance that the encoder returned"),
        (
            (0.0, 200.0),
            0.0,
            "the KL term is inf .*overflows torch.float32 .*log-variance has size 2",
        ),
        ((0.0, 0.0), math.nan, "the reconstruction term is nan .*what the decoder returned holds"),
        ((0.0, 0.0), 1e30, "the reconstruction term is -inf .*it overflows, though"),
    ],
)
def test_a_loss_that_is_no_number_names_its_term(code, decoded, message):
    mean, log_variance = (torch.full((2, 2), v) for v in code)
    vae = VAE(Returns((mean, log_variance)), Returns(torch.full((2, 3), decoded)))
    with pytest.raises(ValueError, match=message):
        vae.loss(X)
    with pytest.raises(ValueError, match=r"x must be finite, got inf at \(0, 0\)"):
        vae.loss((1 + X) / 0)


def test_a_weight_that_is_no_number_names_its_example():
    """The second of three draws of the second of two examples."""
    decoded = torch.zeros(6, 3)
    decoded[3, 1] = math.nan
    vae = VAE(Returns((torch.zeros(2, 2), torch.zeros(2, 2))), Returns(decoded))
    with pytest.raises(ValueError, match="the reconstruction term is nan for example 1: what the"):
        vae.iwae_bound(X, 3)


def test_labels_of_images_keep_their_places():
    """Two images of 2 x 4 labels, of which the logits leave no doubt."""
    y = torch.randint(3, (2, 2, 4))
    logits = 1e4 * torch.nn.functional.one_hot(y, 3).movedim(-1, 1).float()
    vae = VAE(nn.Identity(), Returns(logits), likelihood="categorical", latent=1)
    assert torch.equal(vae.sample(2), y)


def test_sample_needs_the_shape_of_a_code():
    with pytest.raises(ValueError, match="latent must be given to sample before anything was enc"):
        plain().sample(3)
    assert plain(latent=2).sample(3).shape == (3, 3)
    with pytest.raises(ValueError, match=r"must return codes of shape \(5,\), got \(2,\)"):
        plain(latent=5).loss(X)
    for call in (lambda v: v.sample(0), lambda v: v.iwae_bound(X, 0), lambda v: v.log_prob(X, k=0)):
        with pytest.raises(ValueError, match="must be >= 1, got 0"):
            call(plain(latent=2))


def test_ends_of_the_range():
    """Log-variances and logits of any size that the dtype can hold give their closed forms."""
    tiny = torch.tensor([[1e-4, -2e-4]])
    vae = VAE(Returns((torch.zeros(1, 2), tiny)), Returns(torch.zeros(1, 3)))
    kl = vae.elbo(torch.zeros(1, 3)).kl  # (e^v - 1 - v) / 2 = v^2 / 4 + v^3 / 12 + ...
    exact = float((tiny.double() ** 2 / 4 + tiny.double() ** 3 / 12).sum())
    assert abs(float(kl) / exact - 1) < 2e-3
    far = torch.full((1, 2), -1000.0)
    vae = VAE(Returns((torch.ones(1, 2), far)), Returns(torch.zeros(1, 3)))
    assert float(vae.elbo(torch.zeros(1, 3)).kl) == 1000.0
    bits = VAE(nn.Linear(3, 4), Returns(torch.tensor([[1e3, -1e3, -1e4]])), likelihood="bernoulli")
    assert float(bits.elbo(torch.tensor([[1.0, 0.0, 0.0]])).reconstruction) == 0.0
    assert float(bits.elbo(torch.tensor([[0.0, 1.0, 0.0]])).reconstruction) == -2e3
    wide = VAE(nn.Linear(3, 4), Returns(torch.tensor([[0.0] * 3 + [80.0] * 3])), noise="predicted")
    found = float(wide.elbo(torch.zeros(1, 3)).reconstruction)
    assert abs(found + 1.5 * (80 + math.log(2 * math.pi))) < 1e-3


@pytest.mark.parametrize("options", [{}, {"noise": "predicted"}, {"likelihood": "bernoulli"}])
def test_laws_of_parts(options):
    width = 10 if options.get("noise") else 5
    vae = VAE(mlp([5, 8, 4]), mlp([2, 8, width]), **options)
    skip = {"gradient": "a predicted variance is no part of a mean"} if width == 10 else {}
    check_part(vae, torch.rand(4, 5).round(), skip=skip)


def test_half_precision():
    vae = VAE(mlp([5, 8, 4]), mlp([2, 8, 5])).bfloat16()
    x = torch.randn(4, 5).bfloat16()
    assert vae.elbo(x).kl.dtype == torch.float32
    vae.loss(x).backward()
    assert vae.iwae_bound(x, 3).isfinite().all()
    assert vae.sample(3).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        loss = vae.float().loss(x.float())
    assert loss.dtype == torch.float32
    assert loss.isfinite()


@pytest.mark.parametrize(
    ("options", "width"),
    [
        ({"noise": 0.3}, 1000),
        ({"noise": "learned"}, 1000),
        ({"noise": "predicted"}, 2000),
        ({"likelihood": "bernoulli"}, 1000),
    ],
)
def test_sums_of_half_precision_keep_their_digits(options, width):
    """A thousand terms of what decoders of half precision return, against double precision."""
    x, decoded = torch.randn(2, 1000).gt(0).bfloat16(), torch.randn(2, width).bfloat16()
    code = torch.zeros(2, 3), torch.zeros(2, 3)
    found, exact = (
        VAE(Returns([c.to(dtype) for c in code]), Returns(decoded.to(dtype)), **options).elbo(
            x.to(dtype)
        )
        for dtype in (torch.bfloat16, torch.float64)
    )
    torch.testing.assert_close(
        found.reconstruction, exact.reconstruction.float(), rtol=1e-5, atol=0
    )


@pytest.mark.gpu
def test_on_a_gpu():
    vae, x = (
        VAE(mlp([5, 8, 4]), mlp([2, 8, 5]), noise="learned").double(),
        torch.randn(6, 5).double(),
    )
    here = vae.log_prob(x, k=20_000)
    vae.cuda()
    there = vae.log_prob(x.cuda(), k=20_000, memory=10**7)
    assert there.log_prob.is_cuda
    assert vae.sample(4).is_cuda
    gap = (here.log_prob - there.log_prob.cpu()).abs()
    assert (gap < 6 * here.standard_error).all()
    own = vae.sample(4, generator=torch.Generator().manual_seed(0))
    assert own.is_cuda
    assert vae.loss(x.cuda(), generator=torch.Generator("cuda")).is_cuda
    bits = VAE(mlp([5, 8, 4]), mlp([2, 8, 5]), likelihood="bernoulli").cuda()
    with pytest.raises(ValueError, match="entries of x must be 0 or 1"):
        bits.loss(torch.rand(3, 5).cuda())
    labels = VAE(nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 4)),
                 nn.Sequential(nn.Linear(2, 12), nn.Unflatten(1, (4, 3))),
                 likelihood="categorical").cuda()  # fmt: skip
    with pytest.raises(ValueError, match="x must be labels below 4"):
        labels.loss(torch.tensor([[0, 5, 1]]).cuda())
