"""Sharpness as optimisers see it: their diagonals by hand, and runs that diverge beyond it."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.optimization.test_sharpness import X, Y, dense
from vademecum.gradients import functional
from vademecum.models import mlp
from vademecum.optimization import HeavyBall, sharpness


def quadratic(curvatures) -> tuple[nn.Module, Any, Any, Any]:
    """A model of one vector whose loss is a quadratic with these curvatures."""
    d = torch.tensor(curvatures).double()
    net = nn.Linear(len(d), 1, bias=False).double()
    return net, torch.eye(len(d)).double(), None, lambda z, _: (d * z[:, 0] ** 2).sum() / 2


def diverges(net, x, loss, make, *, prepare=lambda optimizer: None, steps=400) -> bool:
    with torch.no_grad():
        net.weight.copy_(1e-3 * torch.tensor([[1.0, -1.0, 0.5]]))
    optimizer = make(net.parameters())
    prepare(optimizer)
    peak = 0.0  # Adam then learns from it
    for _ in range(steps):
        optimizer.zero_grad()
        loss(net(x), None).backward()
        optimizer.step()
        peak = max(peak, float(net.weight.detach().abs().max()))
    return peak > 0.1


MOMENTA = [
    {"momentum": 0.0}, {"momentum": 0.0, "dampening": 0.5}, {"momentum": 0.9},
    {"momentum": 0.7, "dampening": 0.4}, {"momentum": 0.8, "nesterov": True},
]  # fmt: skip


@pytest.mark.parametrize("knobs", MOMENTA, ids=str)
def test_descent_with_momentum_diverges_beyond_the_critical_step(knobs):
    net, x, _, loss = quadratic([5.0, 2.0, 0.5])
    first = torch.optim.SGD(net.parameters(), lr=0.1, **knobs)
    step = sharpness(net, x, loss=loss, preconditioner=first).critical_step
    for factor, wanted in ((0.97, False), (1.03, True)):
        lr = factor * step
        assert diverges(net, x, loss, lambda p, lr=lr: torch.optim.SGD(p, lr, **knobs)) is wanted


def test_heavy_ball_diverges_beyond_the_critical_step():
    net, x, _, loss = quadratic([5.0, 2.0, 0.5])
    first = HeavyBall(net.parameters(), lr=0.1, momentum=0.8)
    step = sharpness(net, x, loss=loss, preconditioner=first).critical_step
    assert step == pytest.approx(3.6 / 5)
    for factor, wanted in ((0.97, False), (1.03, True)):
        lr = factor * step
        assert diverges(net, x, loss, lambda p, lr=lr: HeavyBall(p, lr, momentum=0.8)) is wanted


def test_adam_diverges_beyond_the_critical_step():
    net, x, _, loss = quadratic([5.0, 2.0, 0.5])
    v = torch.tensor([[4.0, 0.01, 1.0]]).double()  # so that the second direction is the sharpest

    def prepare(optimizer):
        state = {"step": torch.tensor(1e8), "exp_avg": torch.zeros_like(v), "exp_avg_sq": v}
        optimizer.state[net.weight] = {name: t.clone() for name, t in state.items()}

    def make(parameters, lr=1e-3):  # second moments that stay, and need no correction
        return torch.optim.Adam(parameters, lr, betas=(0.9, 1 - 5e-7))

    first = make(net.parameters())
    prepare(first)
    found = sharpness(net, x, loss=loss, preconditioner=first)
    assert found.value == pytest.approx(2 / 0.1, rel=1e-6)
    for factor, wanted in ((0.97, False), (1.03, True)):
        lr = factor * found.critical_step
        here = diverges(net, x, loss, lambda p, lr=lr: make(p, lr), prepare=prepare)
        assert here is wanted


OPTIMISERS = {
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-2, betas=(0.8, 0.95)),
    "AMSGrad": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True, foreach=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2)),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-2, momentum=0.5),
    "centered": lambda p: torch.optim.RMSprop(p, lr=1e-2, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, lr_decay=0.1),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_preconditioned_sharpness(name):
    """The diagonal is what the optimiser divides by: read off a step from rest with gradient g."""
    net = mlp([3, 8, 3], nn.Tanh).double()
    optimizer = OPTIMISERS[name](net.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(net(X), Y).backward()
        optimizer.step()
    found, H = sharpness(net, X, Y, preconditioner=optimizer, tol=1e-6), dense(net)
    D = functional(net).ravel({n: by_hand(optimizer, p) for n, p in net.named_parameters()})
    wanted = torch.linalg.eigvalsh(H / (D[:, None] * D).sqrt())
    assert found.value == pytest.approx(float(wanted[-1]), rel=1e-8)
    gap = H @ (found.vector / D.sqrt()) / D.sqrt() - found.value * found.vector
    assert float(gap.norm()) <= 1.01e-6 * float(wanted.abs().max())


def by_hand(optimizer, p):
    group, state = optimizer.param_groups[0], optimizer.state[p]
    if isinstance(optimizer, torch.optim.Adam):
        b1, b2 = group["betas"]
        v = state["max_exp_avg_sq"] if group["amsgrad"] else state["exp_avg_sq"]
        return (1 - b1**5) * ((v / (1 - b2**5)) ** 0.5 + 1e-8)
    if isinstance(optimizer, torch.optim.Adagrad):
        return (state["sum"] ** 0.5 + 1e-10) * 1.4
    v = state["square_avg"] - (state["grad_avg"] ** 2 if group["centered"] else 0)
    return v**0.5 + 1e-8


def test_groups_keep_the_ratio_of_their_rates_and_others_stay_where_they_are():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (nn.Parameter(torch.ones(1).double()) for _ in range(2))

        def forward(self, x):
            return 5 * self.a**2 / 2 + 2 * self.b**2 / 2

    two = Two()
    groups = [{"params": [two.a], "lr": 0.1}, {"params": [two.b], "lr": 0.4}]
    both = torch.optim.SGD(groups)
    first = torch.optim.SGD([two.b], lr=0.1)
    given: Any = {"loss": lambda z, _: z.sum()}
    assert sharpness(two, X, preconditioner=both, **given).value == pytest.approx(4 * 2)
    assert sharpness(two, X, preconditioner=first, **given).value == pytest.approx(2)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.Adagrad, torch.optim.RMSprop])
def test_parameters_that_never_had_a_gradient_stay_where_they_are(kind):
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.pool = nn.Linear(3, 3), nn.Linear(2, 2)

        def forward(self, x):
            return self.a(x)

    net = Unused().double()
    optimizer = kind(net.parameters(), lr=0.1)
    F.cross_entropy(net(X), Y).backward()
    optimizer.step()
    found, alone = (
        sharpness(model, X, Y, preconditioner=optimizer, tol=1e-6) for model in (net, net.a)
    )
    assert found.value == pytest.approx(alone.value, rel=1e-8)
    assert not found.vector[12:].any()
