"""InfoNCE in tiles against the matrix of all scores; predictive coding by the laws of parts."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vademecum.regularization import ContrastivePredictiveCoding, info_nce_loss
from vademecum.testing import check_part


def dense(q, k, temperature):
    return F.cross_entropy(q @ k.T / temperature, torch.arange(len(q), device=q.device))


def steps(loss, q, k, **knobs):
    """The loss and both gradients, of thrice the loss."""
    q, k = q.detach().requires_grad_(), k.detach().requires_grad_()
    value = loss(q, k, **knobs)
    (3 * value).backward()
    assert q.grad is not None
    assert k.grad is not None
    return value.detach(), q.grad, k.grad


@pytest.mark.parametrize("memory", [None, 1, 5000, 10**9])
@pytest.mark.parametrize(("N", "d"), [(1, 3), (37, 5), (64, 8)])
def test_info_nce_loss_is_the_dense_one_whatever_the_tiles(N, d, memory):
    q, k = torch.randn(2, N, d, dtype=torch.float64)
    found = steps(info_nce_loss, q, k, temperature=0.7, memory=memory)
    for a, b in zip(found, steps(dense, q, k, temperature=0.7), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def test_gradients_are_those_of_differences():
    q, k = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: info_nce_loss(a, b, temperature=0.5, memory=100),
                                    (q, k))  # fmt: skip


def test_one_gradient_or_none():
    q, k = torch.randn(2, 9, 4, dtype=torch.float64)
    wanted = steps(dense, q, k, temperature=1.0)
    only_q = q.clone().requires_grad_()
    (3 * info_nce_loss(only_q, k, temperature=1.0)).backward()
    torch.testing.assert_close(only_q.grad, wanted[1])
    only_k = k.clone().requires_grad_()
    (3 * info_nce_loss(q, only_k, temperature=1.0)).backward()
    torch.testing.assert_close(only_k.grad, wanted[2])
    assert not info_nce_loss(q, k, temperature=1.0).requires_grad


def test_scores_that_would_overflow():
    q = 1000 * torch.eye(3)
    loss, dq, dk = steps(info_nce_loss, q, q, temperature=0.01)
    assert loss == 0
    assert dq.abs().max() == dk.abs().max() == 0
    loss = info_nce_loss(q, -q, temperature=1.0)
    torch.testing.assert_close(loss, torch.tensor(1e6).add(torch.tensor(2.0).log()))


def test_a_loss_near_zero_is_not_the_difference_of_large_numbers():
    """Each finds its own key by 100 nats at least, among others of 0."""
    q = torch.linspace(10, 15, 64).diag()
    assert 0 <= info_nce_loss(q, q, temperature=0.7) < 1e-20


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_close_to_single(dtype):
    q, k = F.normalize(torch.randn(2, 200, 32), dim=-1)
    found = steps(info_nce_loss, q.to(dtype), k.to(dtype), temperature=0.1, memory=50_000)
    for a, b in zip(found, steps(dense, q.to(dtype).float(), k.to(dtype).float(), temperature=0.1),
                    strict=True):  # fmt: skip
        assert a.dtype == dtype
        torch.testing.assert_close(a.float(), b, rtol=0.03, atol=0.03 * float(b.abs().max()))


def test_second_derivatives():
    q, k = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda a, b: info_nce_loss(a, b, temperature=0.7), (q, k))
    for once, wanted in zip(
        torch.autograd.grad(info_nce_loss(q, k, temperature=0.7), (q, k), create_graph=True),
        torch.autograd.grad(dense(q, k, 0.7), (q, k)),
        strict=True,
    ):
        torch.testing.assert_close(once, wanted)


def test_log_n_minus_the_loss_stays_below_the_information():
    """Gaussians of known mutual information, with the score that is best."""
    rho, N = 0.9, 64
    information = -0.5 * torch.log(torch.tensor(1 - rho**2))
    losses = []
    for _ in range(200):
        x = torch.randn(N, dtype=torch.float64)
        z = rho * x + (1 - rho**2) ** 0.5 * torch.randn(N, dtype=torch.float64)
        s = 1 / (1 - rho**2)  # log p(z | x) / p(z) = s (rho x z - rho^2 (x^2 + z^2) / 2) + const
        q = torch.stack((s * rho * x, torch.ones_like(x)), 1)
        k = torch.stack((z, -s * rho**2 * z.square() / 2), 1)
        losses.append(info_nce_loss(q, k, temperature=1.0))
    bound = torch.log(torch.tensor(N)) - torch.stack(losses).mean()
    assert 0.7 * information < bound < information


def coding(**knobs):
    encoder, context = nn.Linear(6, 4), nn.GRU(4, 5, batch_first=True)
    return ContrastivePredictiveCoding(encoder, context, 4, width=5, ahead=3, **knobs)


class Latents(nn.Module):
    """What becomes of each sequence alone, for the laws of parts."""

    def __init__(self):
        super().__init__()
        self.net = coding()

    def forward(self, x):
        found = self.net(x)
        ahead = [predict(found.contexts) for predict in self.net.predictions]
        return torch.stack([found.latents, *ahead], 1)


def test_contrastive_predictive_coding_keeps_the_laws_of_parts():
    check_part(Latents(), torch.randn(3, 7, 6), devices=("cpu",))


def test_contrastive_predictive_coding_of_a_wide_latent_and_a_narrow_prediction():
    """As under autocast, where linear maps are in half precision and norms are not."""
    net = coding()
    narrow = net.predictions[0].register_forward_hook(lambda *call: call[2].bfloat16())
    x = torch.randn(3, 7, 6)
    found = net(x)
    narrow.remove()
    assert found.losses.dtype == torch.float32
    torch.testing.assert_close(found.losses, net(x).losses, rtol=0.02, atol=0.02)


def test_information_of_many_pairs_in_half_precision():
    """70,000 is beyond the largest number of float16, its logarithm is not."""

    class Same(nn.Module):
        def forward(self, x):
            return x

    net = ContrastivePredictiveCoding(Same(), Same(), 1, ahead=1, memory=2**22).half()
    net.requires_grad_(False)
    found = net(torch.zeros(350, 3, 1, dtype=torch.float16))
    torch.testing.assert_close(found.information.float(), torch.zeros(1), rtol=0, atol=0.01)


def test_contrastive_predictive_coding_learns_a_walk():
    """Sequences that go on as they began, among ones that began otherwise."""
    torch.manual_seed(0)
    net = coding(memory=10**5)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    direction = torch.randn(32, 1, 6)
    for _ in range(60):
        optimizer.zero_grad()
        net(direction + 0.3 * torch.randn(32, 8, 6)).loss.backward()
        optimizer.step()
    found = net(direction + 0.3 * torch.randn(32, 8, 6))
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in net.parameters())
    assert found.losses.mean() == found.loss
    assert found.information.min() > 0.8  # of log 32 nats at most, were all told apart
    torch.testing.assert_close(found.information[0], torch.tensor(32 * 7).log() - found.losses[0])
