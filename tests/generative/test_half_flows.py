"""Flows in half precision: what comes out differs by rounding from double precision."""

import copy

import pytest
import torch

from vademecum.generative import Compose, LinearFlow, RealNVP

D = 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["qr", "triangular", "diagonal"])
def test_linear_flows_in_half_precision(kind, dtype):
    """A solution has a relative error of some roundings, times the condition of what is solved."""
    torch.manual_seed(0)
    flow = LinearFlow(D, kind=kind, context=2).to(dtype)
    fine, x, context = copy.deepcopy(flow).double(), torch.randn(5, D), torch.randn(5, 2)
    x, context = x.to(dtype), context.to(dtype)
    for name in ("forward", "inverse"):
        with torch.no_grad():
            found = getattr(flow, name)(x, context)
            wanted = getattr(fine, name)(x.double(), context.double())
        assert found.value.dtype == found.log_det.dtype == dtype
        jacobian = torch.autograd.functional.jacobian(
            lambda z, name=name: getattr(fine, name)(z, context[:1].double()).value, x[:1].double()
        )
        condition = float(torch.linalg.cond(jacobian.reshape(D, D)))
        slack = 8 * (D + 2) * torch.finfo(dtype).eps * condition
        size = float(wanted.value.abs().max() + fine.shift.detach().abs().max() + 1)
        assert float((found.value.double() - wanted.value).abs().max()) <= slack * size
        assert float((found.log_det.double() - wanted.log_det).abs().max()) <= slack


def test_gradients_of_a_composition_in_half_precision():
    flow = Compose([LinearFlow(D), RealNVP(D, transforms=2, hidden=(4,))]).bfloat16()
    flow.log_prob(torch.randn(8, D).bfloat16()).mean().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in flow.parameters())
