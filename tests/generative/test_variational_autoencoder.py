"""The variational autoencoder against models whose likelihood is known."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli, Categorical, MultivariateNormal, Normal, kl_divergence
from torch.nn import functional as F

from tests.generative.linear_gaussian import drawn, hermite
from vademecum.generative import VAE, ProbabilisticPCA
from vademecum.models import mlp, peak_bytes


@pytest.mark.parametrize(("d", "m"), [(5, 2), (3, 4)])
def test_kl_and_reconstruction_are_those_of_torch(d, m):
    """Only the draw of the code is left to chance, and it is the same for both."""
    encoder, decoder = mlp([d, 7, 2 * m], nn.Tanh), mlp([m, 6, d], nn.Tanh)
    vae, x = VAE(encoder, decoder, noise=0.4), torch.randn(9, d)
    terms = vae.elbo(x, generator=torch.Generator().manual_seed(3))
    mean, log_variance = encoder(x).chunk(2, 1)
    law = Normal(mean, (log_variance / 2).exp())
    torch.testing.assert_close(terms.kl, kl_divergence(law, Normal(0.0, 1.0)).sum(1))
    z = mean + law.stddev * torch.randn(9, m, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(terms.reconstruction, Normal(decoder(z), 0.4).log_prob(x).sum(1))
    torch.testing.assert_close(terms.elbo, terms.reconstruction - terms.kl)


@pytest.mark.parametrize("beta", [0.0, 1.0, 3.5])
def test_the_loss_weighs_the_divergence_and_elbo_does_not(beta):
    vae, x = VAE(nn.Linear(4, 6), nn.Linear(3, 4), beta=beta), torch.randn(8, 4)
    terms = vae.elbo(x, generator=torch.Generator().manual_seed(1))
    loss = vae.loss(x, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(loss, (beta * terms.kl - terms.reconstruction).mean())
    torch.testing.assert_close(terms.elbo, terms.reconstruction - terms.kl)


def test_the_gap_is_the_divergence_from_the_posterior():
    model = drawn(4, 2)
    vae = model.vae(mean=torch.randn(2, 4).double(), log_variance=torch.tensor([0.3, -1.1]))
    x = torch.randn(3, 4).double()
    code = vae.encode(x)
    variance = code.log_variance.exp()
    bound = model.elbo(x, code.mean, variance).detach()
    mean, cov = model.posterior(x)
    gap = kl_divergence(
        MultivariateNormal(code.mean, torch.diag_embed(variance)), MultivariateNormal(mean, cov)
    )
    torch.testing.assert_close(bound + gap, model.log_prob(x))
    draws = 40_000
    terms = vae.elbo(x.repeat(draws, 1)).elbo.detach().reshape(draws, -1)
    error = terms.std(0) / draws**0.5
    assert ((terms.mean(0) - bound).abs() < 5 * error).all()


def test_with_the_exact_posterior_every_weight_is_the_likelihood():
    """Loadings with orthogonal columns, for which the posterior is in the encoder's family."""
    model = drawn(5, 3, orthogonal=True)
    vae, x = model.vae(), 2 * torch.randn(6, 5).double()
    wanted = model.log_prob(x)
    for k in (1, 2, 7):
        torch.testing.assert_close(vae.iwae_bound(x, k), wanted, rtol=1e-11, atol=1e-11)
        found = vae.log_prob(x, k=k)
        torch.testing.assert_close(found.log_prob, wanted, rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(found.effective, torch.full_like(wanted, k))
        assert k == 1 or found.standard_error.max() < 1e-6
        assert k > 1 or found.standard_error.isnan().all()


@pytest.mark.parametrize("memory", [None, 20_000])
def test_log_prob_is_within_its_standard_error(memory):
    model = drawn(4, 2)
    vae, x = model.vae(log_variance=torch.tensor([0.4, 0.2])), 2 * torch.randn(40, 4).double()
    found = vae.log_prob(x, k=4000, memory=memory)
    z = (found.log_prob - model.log_prob(x)) / found.standard_error
    assert 0.5 < z.std() < 1.5
    assert z.abs().max() < 5
    assert found.effective.min() > 50
    again = vae.log_prob(x, k=4000, memory=memory)
    spread = (found.log_prob - again.log_prob) / (2**0.5 * found.standard_error)
    assert 0.5 < spread.std() < 1.5


def test_portions_keep_to_the_memory():
    vae, x = VAE(mlp([20, 64, 4]), mlp([2, 500, 20])), torch.randn(50, 20)
    free = peak_bytes(lambda: vae.log_prob(x, k=200))
    kept = peak_bytes(lambda: vae.log_prob(x, k=200, memory=300_000))
    assert kept < 330_000 < free / 10  # with the inputs' and the results' own copies
    with pytest.raises(ValueError, match=r"memory must be >= \d+ bytes for one draw, got 10"):
        vae.log_prob(x, k=3, memory=10)


def decoders():
    yield "gaussian", {"noise": 0.6}, mlp([1, 8, 3], nn.Tanh), torch.randn(5, 3).double() / 2
    yield "gaussian", {"noise": "learned"}, mlp([1, 8, 3], nn.Tanh), torch.randn(5, 3).double() / 2
    yield (
        "gaussian",
        {"noise": "predicted"},
        mlp([1, 8, 6], nn.Tanh),
        torch.randn(5, 3).double() / 2,
    )
    bits = torch.randint(2, (5, 3)).double()
    yield "bernoulli", {}, nn.Sequential(mlp([1, 8, 3], nn.Tanh)), bits
    logits = nn.Sequential(mlp([1, 8, 12], nn.Tanh), nn.Unflatten(1, (4, 3)))
    yield "categorical", {}, logits, torch.randint(4, (5, 3))


def by_hand(kind: str, noise, decoded, x, vae):
    """The log-likelihood of one example for each row, by torch.distributions."""
    if kind == "bernoulli":
        return Bernoulli(logits=decoded).log_prob(x).sum(1)
    if kind == "categorical":
        return Categorical(logits=decoded.transpose(1, 2)).log_prob(x).sum(1)
    if noise == "predicted":
        return Normal(decoded[:, :3], (decoded[:, 3:] / 2).exp()).log_prob(x).sum(1)
    scale = (vae.law.log_variance / 2).exp() if noise == "learned" else noise
    return Normal(decoded, scale).log_prob(x).sum(1)


@pytest.mark.parametrize("case", range(5))
def test_log_prob_of_a_network_is_that_of_quadrature(case):
    kind, options, decoder, x = list(decoders())[case]
    decoder = decoder.double()
    with torch.no_grad():
        for p in decoder.parameters():
            p.mul_(2)
    embed = nn.Embedding(4, 2).double()
    encoder = nn.Sequential(embed, nn.Flatten(), nn.Linear(6, 2)) if kind == "categorical" else (
        nn.Linear(3, 2))  # fmt: skip
    with torch.no_grad():  # near the prior, and not it
        for p in encoder.parameters():
            p.mul_(0.3)
    vae: Any = VAE(encoder.double(), decoder, likelihood=kind, **options)
    if options.get("noise") == "learned":
        with torch.no_grad():
            vae.law.log_variance.fill_(-0.8)
    calls = (vae.elbo, vae.loss)
    terms, loss = (call(x, generator=torch.Generator().manual_seed(0)) for call in calls)
    torch.testing.assert_close(loss, (terms.kl - terms.reconstruction).mean())
    nodes, log_weights = hermite()
    decoded = decoder(nodes[:, None]).detach()
    values = [by_hand(kind, options.get("noise"), decoded, row, vae) for row in x]
    wanted = torch.stack([(v + log_weights).logsumexp(0) for v in values])
    found = vae.log_prob(x, k=20_000)
    assert ((found.log_prob - wanted).abs() < 5 * found.standard_error + 1e-9).all()
    assert found.standard_error.max() < 0.05
    bounds = [vae.iwae_bound(x.repeat(4000, *[1] * (x.ndim - 1)), k).detach() for k in (1, 3, 20)]
    means = torch.stack([b.reshape(4000, -1).mean(0) for b in bounds])
    errors = torch.stack([b.reshape(4000, -1).std(0) / 4000**0.5 for b in bounds])
    assert (means.diff(dim=0) > -5 * errors[:-1]).all()
    assert (means <= wanted + 5 * errors).all()
    assert (wanted - means[0]).sum() > 5 * errors[0].norm()
    elbo = vae.elbo(x.repeat(4000, *[1] * (x.ndim - 1))).elbo.detach().reshape(4000, -1)
    assert ((elbo.mean(0) - means[0]).abs() < 5 * (errors[0] + elbo.std(0) / 4000**0.5)).all()


def test_a_linear_vae_ends_at_the_likelihood_of_probabilistic_pca():
    n, d, m = 200, 5, 2
    x = torch.randn(n, d).double() * torch.tensor([3.0, 2.0, 0.7, 0.6, 0.5]) + 1
    x = x @ torch.linalg.qr(torch.randn(d, d).double()).Q
    values = torch.linalg.eigvalsh(torch.cov(x.T, correction=0)).flip(0)
    noise = values[m:].mean()
    log_det = values[:m].log().sum() + (d - m) * noise.log()
    best = -(d * math.log(2 * math.pi) + log_det + d) / 2
    vae: Any = VAE(nn.Linear(d, 2 * m), nn.Linear(m, d), noise="learned").double()
    steps = torch.optim.Adam(vae.parameters(), lr=0.2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(steps, 800)
    for _ in range(800):
        steps.zero_grad()
        vae.loss(x).backward()
        steps.step()
        schedule.step()
    closed, em = (ProbabilisticPCA(m, method=method).fit(x) for method in ("closed", "em"))
    assert abs(closed.score(x) - float(best)) < 1e-9
    assert abs(em.score(x) - float(best)) < 1e-3
    W, b = vae.decoder.weight.detach(), vae.decoder.bias.detach()
    sigma = vae.law.log_variance.detach().exp()
    dense = MultivariateNormal(b, W @ W.T + sigma * torch.eye(d).double()).log_prob(x).mean()
    assert best - 1e-3 < dense < best + 1e-9
    assert abs(float(vae.log_prob(x, k=50).log_prob.mean()) - float(dense)) < 1e-3
    elbo = vae.elbo(x.repeat(50, 1)).elbo.detach()
    assert best - 5e-3 < float(elbo.mean()) < best + 5 * float(elbo.std()) / len(elbo) ** 0.5


class Before(nn.Module):
    """An encoder that takes the context off the examples."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x, context):
        return self.net(x - context)


class After(Before):
    """A decoder that puts it back."""

    def forward(self, x, context):
        return self.net(x) + context


def test_a_context_reaches_both_modules():
    model = drawn(3, 2, orthogonal=True)
    plain = model.vae()
    vae = VAE(Before(plain.encoder), After(plain.decoder), noise=model.sigma)
    x, context = torch.randn(4, 3).double(), torch.randn(4, 3).double()
    wanted = model.log_prob(x - context)
    torch.testing.assert_close(vae.log_prob(x, context, k=3).log_prob, wanted)
    torch.testing.assert_close(vae.iwae_bound(x, 2, context), wanted)
    many, beside = x.repeat(20, 1), context.repeat(20, 1)
    few = vae.log_prob(many, beside, k=3, memory=20_000).log_prob  # some rows at a time
    torch.testing.assert_close(few, wanted.repeat(20))
    far = 1e6 * torch.arange(1.0, 6.0).double()[:, None].expand(5, 3)
    drawn_far = vae.sample(5, far)
    assert ((drawn_far / far - 1).abs() < 1e-3).all()
    assert vae.active_units(x, context).variance.shape == (2,)
    assert vae(x, context).shape == x.shape
    assert vae.loss(x, context).ndim == 0
    for call in (vae.elbo, vae.log_prob, vae.loss):
        with pytest.raises(ValueError, match="context must have 4 rows, one for each example, got"):
            call(x, context[:2])
    with pytest.raises(ValueError, match="context must have 5 rows, one for each draw, got 4"):
        vae.sample(5, context)


def test_samples_have_the_law_of_the_model():
    model, n = drawn(3, 2), 40_000
    vae = model.vae()
    vae.encode(torch.zeros(1, 3).double())
    x = vae.sample(n, generator=torch.Generator().manual_seed(0))
    assert torch.equal(x, vae.sample(n, generator=torch.Generator().manual_seed(0)))
    noiseless = vae.sample(n, mean=True)
    for found, sigma in ((x, model.sigma), (noiseless, 0.0)):
        cov = model.W @ model.W.T + sigma**2 * torch.eye(3).double()
        variances = cov.diagonal()[:, None] * cov.diagonal() + cov**2
        assert ((torch.cov(found.T) - cov).abs() < 5 * (variances / n).sqrt()).all()
        assert ((found.mean(0) - model.b).abs() < 5 * (cov.diagonal() / n).sqrt()).all()


def test_samples_of_bits_and_labels_have_the_decoder_s_frequencies():
    p = torch.tensor([0.1, 0.5, 0.93])
    bits: Any = VAE(nn.Linear(3, 2), nn.Linear(1, 3), likelihood="bernoulli", latent=1)
    labels: Any = VAE(nn.Linear(2, 2), nn.Sequential(nn.Linear(1, 6), nn.Unflatten(1, (3, 2))),
                 likelihood="categorical", latent=1)  # fmt: skip
    logits = torch.tensor([[0.2, 0.5], [0.3, 0.1], [0.5, 0.4]]).log()
    with torch.no_grad():
        for net, bias in ((bits.decoder, p.logit()), (labels.decoder[0], logits.flatten())):
            net.weight.zero_()
            net.bias.copy_(bias)
    x, y = bits.sample(20_000), labels.sample(20_000)
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert y.dtype == torch.int64
    assert ((x.mean(0) - p).abs() < 5 * (p * (1 - p) / 20_000).sqrt()).all()
    shares = F.one_hot(y, 3).float().mean(0).T
    assert ((shares - logits.exp()).abs() < 5 * 0.5 / 20_000**0.5).all()
    torch.testing.assert_close(bits.sample(2, mean=True), p.expand(2, 3))
    torch.testing.assert_close(labels.sample(2, mean=True), logits.exp().expand(2, 3, 2))
