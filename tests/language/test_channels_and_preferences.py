"""Noisy channels, Bradley and Terry, and policies: closed forms and derivatives."""

import math

import pytest
import torch

from vademecum.language import bradley_terry, kl_regularized_policy, noisy_channel


def test_noisy_channel_weights_the_prior_and_broadcasts():
    channel = torch.rand(3, 2, 4).double()
    prior = torch.rand(2, 4).double()
    found = noisy_channel(channel.log(), prior.log(), weight=0.5)
    joint = channel * prior.sqrt()
    wanted = joint / joint.sum(-1, keepdim=True)
    torch.testing.assert_close(found.log_posterior.exp(), wanted)
    assert found.best.equal(joint.argmax(-1))


def test_noisy_channel_with_impossible_targets():
    channel = torch.tensor([[0.0, 0.5], [1.0, 0.0]]).log()
    found = noisy_channel(channel, torch.tensor([0.5, 0.5]).log())
    assert found.best.tolist() == [1, 0]
    assert found.log_posterior[0, 0] == -torch.inf
    flat = noisy_channel(torch.tensor([0.3, 0.7]).log(), torch.tensor([1.0, 0.0]).log(), weight=0)
    assert int(flat.best) == 1  # a prior of weight 0 forbids nothing


def test_noisy_channel_adds_in_double_precision():
    channel, prior = torch.tensor([-4096.0, -4096.0]), torch.tensor([-1.0, -2.0])
    wanted = torch.tensor([-1.0, -2.0]).log_softmax(0)
    for dtype, atol in ((torch.float16, 1e-3), (torch.float32, 1e-6)):
        found = noisy_channel(channel.to(dtype), prior.to(dtype))
        assert found.log_posterior.dtype == dtype
        torch.testing.assert_close(found.log_posterior.float(), wanted, rtol=0, atol=atol)


def test_bradley_terry_is_where_the_likelihood_is_flat():
    wins = torch.randint(1, 30, (7, 7)).double()
    wins.fill_diagonal_(0)
    found = bradley_terry(wins)
    r = found.rewards.clone().requires_grad_()
    ell = (wins * torch.nn.functional.logsigmoid(r[:, None] - r)).sum()
    ell.backward()
    assert r.grad is not None
    assert float(r.grad.abs().max()) < 1e-7
    assert found.log_likelihood == pytest.approx(ell.item())
    assert found.converged
    assert found.gradient <= 1e-10
    assert float(found.rewards.sum()) == pytest.approx(0, abs=1e-12)


def test_bradley_terry_of_a_lopsided_cycle_and_of_large_counts():
    cycle = torch.tensor([[0.0, 1e6, 0], [0, 0, 1e6], [1.0, 0, 0]])
    found = bradley_terry(cycle)
    assert found.converged
    assert found.rewards.tolist() == sorted(found.rewards.tolist(), reverse=True)
    games = cycle + cycle.T
    p = torch.sigmoid(found.rewards[:, None] - found.rewards)
    expected = (games * p).sum(1)  # as many wins as there were, to tol = 1e-10 of all games
    torch.testing.assert_close(expected, cycle.sum(1).double(), rtol=0, atol=4e-4)


def test_bradley_terry_hears_answers_that_are_seldom_compared():
    wins = torch.tensor([[0, 10**12, 0], [10**12, 0, 1], [0, 2, 0]])
    found = bradley_terry(wins)
    gaps = found.rewards.diff().tolist()
    assert gaps == pytest.approx([0, math.log(2)], abs=1e-8)
    assert found.rewards.equal(bradley_terry(wins.double()).rewards)


def test_bradley_terry_says_when_it_has_not_converged():
    wins = torch.tensor([[0.0, 9.0, 1.0], [1.0, 0, 5.0], [1.0, 1.0, 0]])
    with pytest.warns(Warning, match="max_iter=1 reached"):
        found = bradley_terry(wins, max_iter=1)
    assert not found.converged
    assert found.n_iter == 1


def test_kl_regularized_policy_is_a_fixed_point_of_gradient_ascent():
    rewards, prior = torch.randn(3, 5).double(), torch.rand(3, 5).double()
    prior = prior / prior.sum(1, keepdim=True)
    found = kl_regularized_policy(rewards, prior, beta=0.7)
    logits = found.policy.log().requires_grad_()
    policy = logits.softmax(1)
    value = (policy * rewards).sum(1) - 0.7 * (policy * (policy / prior).log()).sum(1)
    value.sum().backward()
    assert logits.grad is not None
    assert float(logits.grad.abs().max()) < 1e-12
    torch.testing.assert_close(value.detach(), found.value)


def test_kl_regularized_policy_never_leaves_the_prior_and_survives_large_rewards():
    prior = torch.tensor([0.5, 0.5, 0.0])
    found = kl_regularized_policy(torch.tensor([1000.0, 0.0, 5000.0]), prior, beta=0.1)
    assert found.policy.tolist() == [1, 0, 0]
    assert float(found.value) == pytest.approx(1000 + 0.1 * math.log(0.5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_kl_regularized_policy_at_a_vanishing_price_is_the_best_that_can_be(dtype):
    prior = torch.tensor([0.25, 0.25, 0.5, 0.0], dtype=dtype)
    rewards = torch.tensor([3.0, 3.0, 1.0, 4.0], dtype=dtype)
    found = kl_regularized_policy(rewards, prior, beta=1e-300)
    assert found.policy.tolist() == [0.5, 0.5, 0, 0]
    assert float(found.value) == 3
    assert found.policy.dtype == found.value.dtype == dtype
