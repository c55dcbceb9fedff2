"""Networks with Gaussian weights: their law by moments, their divergence, and what they refuse."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from vademecum.foundations import gaussian_kl
from vademecum.generalization import StochasticNetwork
from vademecum.models import mlp
from vademecum.testing import check_part
from vademecum.testing.laws import changes, snapshot

RANDOM = "the weights are drawn in evaluation, too"
S, PASSES = 4000, 700


def fixed(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def spread(network: StochasticNetwork) -> StochasticNetwork:
    """Other means and variances than those of the prior."""
    with torch.no_grad():
        for p in network.model.parameters():
            if p.requires_grad:
                p.add_(0.1 * torch.randn(p.shape, generator=fixed(2)).to(p))
        for v in network.log_variance:
            v.add_(torch.rand(v.shape, generator=fixed(1)).to(v) - 0.7)
    return network


class Tied(nn.Module):
    """A weight in two layers, one that is frozen, a buffer, and inputs in a dict."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.out = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)
        self.two.weight = self.one.weight
        self.out.bias.requires_grad_(False)
        self.register_buffer("shift", torch.tensor([0.5, -0.5, 0.2]))

    def forward(self, batch: dict[str, Any], scale: float = 1.0) -> Tensor:
        x = batch["x"] + self.shift
        return self.out(scale * torch.tanh(self.two(torch.tanh(self.one(x)))))


class Tokens(nn.Module):
    """Rows of tokens through one layer, then their mean through another."""

    def __init__(self):
        super().__init__()
        self.each, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.each(x)).mean(1))


class Flattened(Tokens):
    """The same, with all tokens of all examples as rows of one matrix."""

    def forward(self, x: Tensor) -> Tensor:
        each = torch.tanh(self.each(x.reshape(-1, 3)))
        return self.last(each.view(len(x), -1, 4).mean(1))


def convolutional() -> nn.Module:
    layers = [nn.Conv2d(2, 4, 3, padding=1, stride=2, groups=2), nn.Tanh(), nn.Conv2d(4, 3, 2),
              nn.Flatten(), nn.Linear(3, 2)]  # fmt: skip
    return nn.Sequential(*layers)


NETWORKS = {
    "mlp": (lambda: mlp([3, 5, 2]), (2, 3), ("auto", "example")),
    "no bias": (lambda: mlp([3, 5, 2], bias=False), (2, 3), ("auto", "example")),
    "convolutions": (convolutional, (2, 2, 4, 4), ("auto", "example")),
    "tokens": (Tokens, (2, 5, 3), ("auto", "example")),
    "flattened tokens": (Flattened, (2, 5, 3), ("auto",)),
    "gru": (lambda: nn.Sequential(nn.GRU(3, 2, batch_first=True), _Last()), (2, 4, 3), ("auto",)),
    "normalised": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh()),
        (2, 3),
        ("auto",),
    ),
}


class _Last(nn.Module):
    def forward(self, x: Any) -> Tensor:
        return x[0][:, -1]


def drawn_by_hand(network: StochasticNetwork, *inputs: Any, passes: int = S) -> Tensor:
    """Passes of the mean network with weights in the place of its own, as torch has it."""
    names = [name for name, p in network.model.named_parameters() if p.requires_grad]
    g, stacks = fixed(7), {}
    for name, v in zip(names, network.log_variance, strict=True):
        mean = network.model.get_parameter(name)
        noise = torch.randn(passes, *v.shape, generator=g)
        stacks[name] = (mean + (v / 2).exp() * noise).detach()

    def once(weights: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(network.model, weights, inputs)

    with torch.no_grad():
        if any(isinstance(m, nn.GRU) for m in network.model.modules()):
            return torch.stack([once({k: t[i] for k, t in stacks.items()}) for i in range(PASSES)])
        return torch.func.vmap(once)(stacks)


def alike(found: Tensor, wanted: Tensor) -> None:
    """Means, variances and covariances of outputs (of each example), within five errors."""
    for moment in (lambda t: t, lambda t: t.square(), lambda t: t[..., :1] * t[..., 1:]):
        a, b = (moment(t.double() - wanted.double().mean(0)) for t in (found, wanted))
        error = (a.var(0) / len(a) + b.var(0) / len(b)).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() <= 5 * error + 1e-6).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_stochastic_network_has_the_law_of_drawn_weights(name):
    make, shape, kinds = NETWORKS[name]
    torch.manual_seed(3)
    x = torch.randn(shape)
    network = spread(StochasticNetwork(make(), prior="init", prior_std=0.4))
    wanted = drawn_by_hand(network, x)
    many = x[:, None].expand(-1, S, *x.shape[1:])
    with torch.no_grad():
        for draws in kinds:
            network.draws, network._shared = draws, None
            if draws == "example":
                each = [network(t) for t in many]
                alike(torch.stack(each, 1), wanted)
                one, other = each[0][: S // 2, 0], each[0][S // 2 :, 0]
                product = (one - one.mean()) * (other - other.mean())
                assert product.mean().abs() < 5 * product.std() / (S // 2) ** 0.5
            else:
                alike(torch.stack([network(x) for _ in range(PASSES)]), wanted)


def test_stochastic_network_who_has_draws_of_its_own():
    """Layers over rows are drawn by example, kernels and shared rows by batch."""
    cases = {"mlp": set(), "tokens": {0, 1}, "flattened tokens": {0, 1}, "convolutions": {0, 1},
             "normalised": {2, 3}}  # fmt: skip
    for name, shared in cases.items():
        make, shape, _ = NETWORKS[name]
        network = StochasticNetwork(make(), prior="init")
        network(torch.randn(shape))
        assert network._shared == shared, name
    # as many tokens as examples is a coincidence, and no reason to take one for the other
    network = StochasticNetwork(Flattened(), prior="init")
    network(torch.randn(1, 1, 3))
    network(torch.randn(4, 4, 3))
    assert network._shared == {0, 1}


def test_stochastic_network_finds_another_way_through_a_model():
    torch.manual_seed(3)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3, bias=False)

        def forward(self, x: Tensor, twice: bool) -> Tensor:
            return self.layer(self.layer(x)) if twice else self.layer(x)

    network = StochasticNetwork(Twice(), prior="init", prior_std=0.5)
    x = torch.randn(2, 3)
    network(x, False)
    assert network._shared == set()
    with torch.no_grad():
        found = torch.stack([network(x, True) for _ in range(PASSES)])
    assert network._shared == {0}
    alike(found, drawn_by_hand(network, x, True))


@pytest.mark.parametrize("draws", ["auto", "batch"])
def test_stochastic_network_with_ties_frozen_parameters_buffers_and_dicts(draws):
    model = Tied()
    before = snapshot(model)
    network = StochasticNetwork(model, prior=model, prior_std=0.3, draws=draws, generator=fixed(4))
    spread(network)
    assert [len(places) for places in network._places] == [2, 1, 1, 1]
    batch = {"x": torch.randn(2, 3, generator=fixed())}
    with torch.no_grad():
        found = torch.stack([network(batch, scale=1.5) for _ in range(PASSES)])
    assert not list(changes(before, snapshot(model)))
    alike(found, drawn_by_hand(network, batch, 1.5))


def test_stochastic_network_divergence_against_torch_and_the_dense_formula():
    model = Tied().double()
    prior = copy.deepcopy(model)
    with torch.no_grad():
        prior.one.weight.add_(0.2)
        prior.out.weight.sub_(0.3)
    network = spread(StochasticNetwork(model, prior=prior, prior_std=0.35))
    q = [(p.detach(), (v / 2).exp().detach()) for p, v in
         zip([p for p in network.model.parameters() if p.requires_grad], network.log_variance,
             strict=True)]  # fmt: skip
    starts = [p.detach() for p in prior.parameters() if p.requires_grad]
    wanted = sum(
        kl_divergence(Normal(m, s), Normal(p, 0.35)).sum()
        for (m, s), p in zip(q, starts, strict=True)
    )
    torch.testing.assert_close(network.kl().detach(), wanted, rtol=1e-12, atol=0)
    mean, std, start = (torch.cat([t.flatten() for t in each]) for each in
                        ([m for m, _ in q], [s for _, s in q], starts))  # fmt: skip
    eye = torch.eye(len(mean), dtype=torch.float64)
    dense = gaussian_kl(mean, std.square().diag(), start, 0.35**2 * eye)
    torch.testing.assert_close(network.kl().detach(), dense, rtol=1e-10, atol=0)
    scales = torch.logspace(-1, 0.5, 200).tolist()
    best = min(network.kl(prior_std=s).item() for s in [*scales, network.best_prior_std()])
    assert network.kl(prior_std=network.best_prior_std()).item() == best
    single = copy.deepcopy(network).float()
    assert single.kl(dtype=torch.float64).item() == pytest.approx(dense.item(), rel=1e-6)


def test_stochastic_network_divergence_is_differentiable_twice():
    network = spread(StochasticNetwork(nn.Linear(2, 2).double(), prior="init", prior_std=0.6))
    values = list(network.parameters())

    def kl(*tensors: Tensor) -> Tensor:
        named = dict(zip(dict(network.named_parameters()), tensors, strict=True))
        return torch.func.functional_call(_Kl(network), {f"n.{k}": t for k, t in named.items()})

    given = tuple(p.detach().clone().requires_grad_() for p in values)
    assert torch.autograd.gradcheck(kl, given)
    assert torch.autograd.gradgradcheck(kl, given)
    plain = StochasticNetwork(nn.Linear(2, 2), prior="init", prior_std=0.6)
    assert plain.kl().item() == 0


class _Kl(nn.Module):
    def __init__(self, n: StochasticNetwork):
        super().__init__()
        self.n = n

    def forward(self) -> Tensor:
        return self.n.kl()


def test_stochastic_network_gradients_at_dead_rows_are_finite():
    network = StochasticNetwork(mlp([3, 4, 2], bias=False), prior="init")
    network(torch.zeros(2, 3)).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("name", ["mlp", "convolutions"])
def test_stochastic_network_keeps_the_laws_of_parts(name):
    make, shape, _ = NETWORKS[name]
    laws: list[str] = ["determinism", "device", "save_load", "independence", "untouched"]
    skip = dict.fromkeys(laws, RANDOM)
    check_part(StochasticNetwork(make(), prior="init"), torch.randn(5, *shape[1:]), skip=skip)


def test_stochastic_network_draws_from_its_generator_and_saves_its_state():
    network = StochasticNetwork(mlp([3, 4, 2]), prior="init", generator=fixed())
    x, state = torch.randn(5, 3), torch.get_rng_state()
    first, second = network(x), network(x)
    assert state.equal(torch.get_rng_state())
    assert not first.equal(second)
    other = StochasticNetwork(mlp([3, 4, 2]), prior="init", prior_std=0.7, generator=fixed())
    other.load_state_dict(network.state_dict())
    assert other(x).equal(first)
    assert other.prior_std == network.prior_std
    assert repr(network).startswith("StochasticNetwork(\n  prior_std=0.1, draws='auto'")


def test_stochastic_network_each_example_has_its_own_bias():
    """A kernel over zeros gives its bias: one number over places, another for each example."""
    network = StochasticNetwork(nn.Conv1d(1, 2, 2), prior="init", prior_std=0.1, draws="example")
    z = network(torch.zeros(2000, 1, 5)).detach()
    assert z[..., 0].equal(z[..., 3])
    assert ((z[..., 0].std(0) - 0.1).abs() < 5 * 0.1 / 4000**0.5).all()


def test_stochastic_network_of_examples_has_the_mean_of_the_bias():
    """Also where the bias is not drawn: its sign counts."""
    for frozen in (False, True):
        layer = nn.Conv1d(1, 2, 2)
        with torch.no_grad():
            assert layer.bias is not None
            layer.bias.copy_(torch.tensor([3.0, -2.0]))
        layer.bias.requires_grad_(not frozen)
        network = StochasticNetwork(layer, prior="init", prior_std=0.1, draws="example")
        z = network(torch.zeros(2000, 1, 5)).detach()
        assert ((z.mean((0, 2)) - layer.bias.detach()).abs() < 5.5 * 0.1 / 2000**0.5 + 1e-6).all()
