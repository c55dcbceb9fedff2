"""Averages of predictors and the distillation loss: oracles, half precision, bad input."""

import re
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from vademecum.regularization import distillation_loss, ensemble_average, mc_dropout


def test_ensemble_average_without_targets():
    members = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    found = ensemble_average(members, weights=torch.tensor([0.25, 0.75]))
    assert found.mean.tolist() == [2.5, 5.0]
    assert found.error is None


def test_ensemble_average_splits_exactly():
    members, y = torch.randn(4, 5, 2, 3).double(), torch.randn(5, 2, 3).double()
    found: Any = ensemble_average(members, y)
    torch.testing.assert_close(found.error, (members.mean(0) - y).square().sum((1, 2)))
    torch.testing.assert_close(found.mean_error - found.ambiguity, found.error)
    alone = ensemble_average(members[:1], y)
    torch.testing.assert_close(alone.ambiguity, torch.zeros(5).double())


def test_members_without_weight_do_not_count():
    p = torch.tensor([[[0.0, 1.0]], [[0.5, 0.5]], [[0.25, 0.75]]])
    weights = torch.tensor([0.0, 0.5, 0.5])
    found: Any = ensemble_average(p, torch.tensor([0]), weights=weights)
    alone: Any = ensemble_average(p[1:], torch.tensor([0]))
    for one, other in zip(found, alone, strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(found.mean_error, torch.tensor([8.0]).log() / 2)
    torch.testing.assert_close(found.error, torch.tensor([8 / 3]).log())
    torch.testing.assert_close(found.ambiguity, found.mean_error - found.error)


@pytest.mark.parametrize("shape", [(6, 5), (2, 3, 5)])
@pytest.mark.parametrize("temperature", [0.5, 1, 4.0])
def test_distillation_loss_is_torchs_divergence_with_the_entropy(shape, temperature):
    student = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    teacher = 3 * torch.randn(shape, dtype=torch.float64)
    p = (teacher / temperature).softmax(-1)
    logs = (student / temperature).log_softmax(-1).flatten(0, -2)
    kl = F.kl_div(logs, p.flatten(0, -2), reduction="batchmean")
    entropy = -(p * p.log()).sum(-1).mean()
    loss = distillation_loss(student, teacher, temperature=temperature)
    torch.testing.assert_close(loss, kl + entropy)
    scaled = distillation_loss(student, teacher, temperature=temperature, scaled=True)
    torch.testing.assert_close(scaled, temperature**2 * loss)
    found, wanted = (torch.autograd.grad(z, student, retain_graph=True) for z in (loss, kl))
    torch.testing.assert_close(found, wanted)


def test_half_precision_is_widened_and_large_logits_are_safe():
    student, teacher = 8 * torch.randn(2, 50, 1000)
    half = student.bfloat16().requires_grad_()
    loss = distillation_loss(half, teacher.bfloat16(), temperature=2.0)
    wanted = distillation_loss(half.double(), teacher.bfloat16().double(), temperature=2.0)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-6, atol=0)
    loss.backward()
    assert half.grad is not None
    assert half.grad.dtype == torch.bfloat16
    huge = torch.tensor([[3e4, -3e4, 0.0]])
    assert distillation_loss(huge, huge, temperature=1.0) == 0


def test_classes_out_of_the_question_and_the_teacher_is_a_constant():
    student = torch.tensor([[0.0, 0.0, -torch.inf]], requires_grad=True)
    teacher = torch.tensor([[1.0, 1.0, -torch.inf]], requires_grad=True)
    loss = distillation_loss(student, teacher, temperature=1.0)
    torch.testing.assert_close(loss, torch.tensor(2.0).log())
    loss.backward()
    assert student.grad is not None
    assert student.grad.isfinite().all()
    assert teacher.grad is None
    assert distillation_loss(student * torch.nan, teacher, temperature=1.0).isnan()


@pytest.mark.usefixtures("unchecked")
def test_distillation_loss_compiles_whole():
    compiled = torch.compile(distillation_loss, fullgraph=True, backend="eager")
    student, teacher = torch.randn(2, 4, 3)
    found = compiled(student, teacher, temperature=2.0)
    torch.testing.assert_close(found, distillation_loss(student, teacher, temperature=2.0))


Z, M = torch.zeros(2, 3), torch.zeros(4, 2, 3)
BAD = [
    (lambda: distillation_loss(Z, Z, temperature=0.0), "temperature must be > 0, got 0.0"),
    (lambda: distillation_loss(Z, Z[:1], temperature=1.0), "teacher must be (2, 3) on cpu"),
    (lambda: distillation_loss(Z.long(), Z, temperature=1.0), "student must be floating-point"),
    (lambda: distillation_loss(Z[:0], Z[:0], temperature=1.0), "student must be floating-point"),
    (lambda: ensemble_average(M[:0], Z), "members must not be empty"),
    (lambda: ensemble_average(M[0, 0], Z), "members must have shape (members, n, ...), got (3,)"),
    (lambda: ensemble_average(M / 0, Z), "members must be finite, got nan"),
    (lambda: ensemble_average(M, Z[:1]), "y must have shape (2, 3), got (1, 3)"),
    (lambda: ensemble_average(M + 1 / 3, torch.tensor([0, 3])), "y must be classes from 0 to 2"),
    (lambda: ensemble_average(M + 1 / 3, torch.tensor([0])), "y (n,) where y are classes, got"),
    (lambda: ensemble_average(M, torch.tensor([0, 1])), "members must sum to one"),
    (lambda: ensemble_average(M, Z, weights=torch.ones(4)), "weights must sum to one"),
    (lambda: ensemble_average(M, Z, weights=torch.ones(1)), "weights must have shape (4,)"),
    (lambda: mc_dropout(torch.nn.Dropout(), Z, samples=1), "samples must be >= 2, got 1"),
    (lambda: mc_dropout(torch.nn.Dropout(), Z / 0), "x must be finite"),
    (lambda: mc_dropout(torch.nn.Dropout(), Z, link="probit"), "link must be one of 'softmax'"),
    (lambda: mc_dropout(torch.nn.Dropout(), Z[:, :1], link="softmax"), "link must not be 'soft"),
    (lambda: mc_dropout(torch.nn.Dropout(), Z, memory=0), "memory must be >= 1, got 0"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), BAD, ids=[m for _, m in BAD])
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
