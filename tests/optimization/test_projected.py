"""Sign descent and projected descent, against closed forms."""

import pytest
import torch
from torch import nn

from vademecum.foundations import Ball, Box, project
from vademecum.optimization import ProjectedSGD, SignSGD


def test_sign_sgd_moves_every_coordinate_by_the_rate():
    x = torch.tensor([3.0, -0.25, 0.0, 1e-30], dtype=torch.float64, requires_grad=True)
    optimizer = SignSGD([x], lr=0.5)
    for wanted in ([2.5, 0.25, 0.0, 1e-30 - 0.5], [2.0, -0.25, 0.0, 1e-30]):
        optimizer.zero_grad()
        x.pow(4).sum().backward()
        optimizer.step()
        assert x.tolist() == pytest.approx(wanted, abs=1e-15)


@pytest.mark.parametrize("foreach", [None, True])
@pytest.mark.parametrize("tensor", [False, True])
def test_sign_sgd_takes_both_parts_of_complex_numbers(foreach, tensor):
    z = torch.tensor([1 + 2j, -3j], requires_grad=True)
    z.grad = torch.tensor([5 - 0.1j, -2j])
    SignSGD([z], lr=torch.tensor(0.5) if tensor else 0.5, foreach=foreach).step()
    assert z.tolist() == [0.5 + 2.5j, -2.5j]


def test_projected_sgd_finds_the_nearest_point_of_a_ball():
    target = torch.tensor([3.0, 4.0, 0.0], dtype=torch.float64)
    a = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    b = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = ProjectedSGD([a, b], lr=0.3, project=Ball(torch.zeros(3).double(), 1.0))
    for _ in range(60):
        optimizer.zero_grad()
        ((torch.cat([a, b]) - target).square().sum() / 2).backward()
        optimizer.step()
    assert torch.cat([a, b]).tolist() == pytest.approx([0.6, 0.8, 0.0])


def test_projected_sgd_takes_functions_and_groups_of_their_own():
    a, b = (nn.Parameter(torch.zeros(2, 2)) for _ in range(2))
    groups = [
        {"params": [a], "project": lambda v: project(v, "simplex")},
        {"params": [b], "project": Box(torch.zeros(4), torch.full((4,), 0.5))},
    ]
    optimizer = ProjectedSGD(groups, lr=1.0, project=lambda v: v)
    a.grad, b.grad = (
        torch.tensor([[1.0, -3.0], [0.0, 0.0]]),
        torch.tensor([[-1.0, 1.0], [-0.25, 0]]),
    )
    optimizer.step()
    assert a.tolist() == [[0, 1], [0, 0]]
    assert b.tolist() == [[0.5, 0], [0.25, 0]]


def test_parameters_without_gradients_are_constrained_too():
    a, b = nn.Parameter(torch.tensor([3.0])), nn.Parameter(torch.tensor([4.0]))
    frozen = nn.Parameter(torch.tensor([7.0]), requires_grad=False)
    optimizer = ProjectedSGD([a, b, frozen], lr=1.0, project=Ball(torch.zeros(2), 1.0))
    a.grad = torch.zeros(1)
    optimizer.step()
    assert [a.item(), b.item(), frozen.item()] == pytest.approx([0.6, 0.8, 7.0])


def test_a_state_dict_leaves_the_set_alone():
    x = nn.Parameter(torch.ones(2))
    optimizer = ProjectedSGD([x], lr=1.0, project=Ball(torch.zeros(2), 1.0))
    saved = optimizer.state_dict()
    assert "project" not in saved["param_groups"][0]
    optimizer.load_state_dict(saved)
    x.grad = torch.zeros(2)
    optimizer.step()
    assert x.norm().item() == pytest.approx(1.0)


def made(project, *params):
    return ProjectedSGD(params or [nn.Parameter(torch.ones(2))], lr=1.0, project=project)


def one_short():
    x = nn.Parameter(torch.ones(2))
    x.grad = torch.ones(2)
    ProjectedSGD([x], lr=1.0, project=lambda v: v[:1]).step()


ERRORS = [
    (lambda: made("simplex"), "project must be a region or a function of a vector, got str"),
    (lambda: made(Ball(torch.zeros(3), 1.0)), "project must be a region of 2 dimensions.* got 3"),
    (
        lambda: made(
            lambda v: v, nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2).double())
        ),
        "params of a group must be real, of one dtype and on one device, got torch.float64",
    ),
    (
        lambda: made(lambda v: v, nn.Parameter(torch.ones(2) * 1j)),
        "must be real, .* got torch.complex64",
    ),
    (one_short, r"project must give a vector of 2 entries, got shape \(1,\)"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_errors(act, message):
    with pytest.raises(ValueError, match=message):
        act()
