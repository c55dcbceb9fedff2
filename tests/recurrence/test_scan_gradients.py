"""Derivatives of the scan: both directions, twice, mapped and compiled."""

import itertools
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from tests.recurrence.scan_oracles import drawn, loop
from vademecum.recurrence import scan
from vademecum.recurrence.linear_scan import _on_cpu

SUBSETS = [s for k in (1, 2, 3) for s in itertools.combinations(("a", "b", "initial"), k)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("wanted", SUBSETS, ids="-".join)
def test_gradients_of_all_subsets(wanted, constant, reverse):
    T = 4
    given: dict[str, Any] = {
        "a": drawn(*(() if constant else (2, T)), 2, dtype=torch.complex128, modulus=1.5),
        "b": drawn(2, T, 2, dtype=torch.complex128),
        "initial": drawn(1, 2, dtype=torch.complex128),
    }
    reset = torch.tensor([[False, False, True, False], [True, False, False, True]])

    def states(*tensors):
        return scan(
            **(given | dict(zip(wanted, tensors, strict=True))), reset=reset, reverse=reverse
        )

    tensors = tuple(given[name].requires_grad_() for name in wanted)
    assert gradcheck(states, tensors, check_forward_ad=len(wanted) == 3, fast_mode=True)
    assert gradgradcheck(states, tensors, fast_mode=True)


def test_derivatives_in_every_mode():
    a, b = drawn(2, dtype=torch.complex128, modulus=1.0), drawn(3, 2, dtype=torch.complex128)
    tensors = (a.requires_grad_(), b.requires_grad_())
    assert gradcheck(
        scan, tensors, check_forward_ad=True, check_batched_grad=True,
        check_batched_forward_grad=True, check_undefined_grad=True,
    )  # fmt: skip
    assert gradgradcheck(scan, tensors, check_batched_grad=True, check_fwd_over_rev=True)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_gradients_of_long_sequences(constant, create_graph, monkeypatch):
    monkeypatch.setattr(_on_cpu, "_LONG", 64)
    a = drawn(*(() if constant else (2, 300)), 3, modulus=1.0).requires_grad_()
    b, initial = drawn(2, 300, 3).requires_grad_(), drawn(2, 3).requires_grad_()
    given: dict[str, Any] = {"initial": initial, "reset": torch.rand(2, 300) < 0.02}
    weights = drawn(2, 300, 3)
    ours, theirs = (
        torch.autograd.grad((weights * f(a, b, **given)).sum(), (a, b, initial), create_graph=c)
        for f, c in ((scan, create_graph), (loop, False))
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, other, rtol=1e-11, atol=1e-11)


def test_only_what_is_asked_for_is_saved():
    saved: list[torch.Tensor] = []
    a, b = drawn(5, modulus=1.0), drawn(2, 7, 5)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        h = scan(a.requires_grad_(), b.requires_grad_())
        assert sorted(x.numel() for x in saved) == [a.numel(), h.numel()]
        saved.clear()
        scan(a.detach(), b)
        assert [x.numel() for x in saved] == [a.numel()]


def test_vmap_over_any_operand():
    a, b, initial = drawn(4, 3, modulus=1.0), drawn(4, 2, 9, 3), drawn(4, 2, 3)
    reset = torch.rand(4, 2, 9) < 0.3

    def states(a, b, initial, reset):
        return scan(a, b, initial=initial, reset=reset)

    for dims in itertools.product((0, None), repeat=4):
        if any(dim is not None for dim in dims):
            given = [
                x if dim == 0 else x[0] for x, dim in zip((a, b, initial, reset), dims, strict=True)
            ]
            got = torch.func.vmap(states, dims)(*given)
            for k in range(4):
                one = [x if dim is None else x[k] for x, dim in zip(given, dims, strict=True)]
                assert torch.allclose(got[k], states(*one), rtol=1e-13, atol=1e-13)


def test_vmap_of_gradients_and_directions():
    a, b = drawn(4, 3, modulus=1.0), drawn(4, 9, 3)

    def total(f):
        return lambda a, b: f(a, b).square().sum()

    got = torch.func.vmap(torch.func.grad(total(scan)))(a, b)
    want = torch.func.vmap(torch.func.grad(total(loop)))(a, b)
    assert torch.allclose(got, want)
    pairs = [
        torch.func.jvp(torch.func.grad(total(f)), (a[0], b[0]), (a[1], b[1])) for f in (scan, loop)
    ]
    assert all(torch.allclose(x, y) for x, y in zip(*pairs, strict=True))


@pytest.mark.parametrize("orders", list(itertools.product(("jacfwd", "jacrev"), repeat=2)))
@pytest.mark.parametrize("reverse", [False, True])
def test_second_derivatives_in_every_order(orders, reverse):
    """Also forward mode within forward mode, which torch switches off within a custom `jvp`."""
    z, reset = drawn(2 + 6 + 2), torch.tensor([False, True, False])
    found = []
    for f in (scan, loop):

        def total(z, f=f):
            given = {"initial": z[8:], "reset": reset, "reverse": reverse}
            return f(z[:2].tanh(), z[2:8].view(3, 2), **given).pow(3).sum()

        for order in orders:
            total = getattr(torch.func, order)(total)
        found.append(total(z))
    assert torch.allclose(*found, rtol=1e-11, atol=1e-11)


def test_directions_where_nobody_records():
    a, b = drawn(3, modulus=1.0).requires_grad_(), drawn(9, 3)
    with torch.no_grad(), forward_ad.dual_level():
        h = scan(forward_ad.make_dual(a, torch.ones_like(a)), b)
        tangent = forward_ad.unpack_dual(h).tangent
    assert tangent is not None
    assert not tangent.requires_grad


def test_directions_pass_through_a_backward_that_keeps_no_graph():
    a, b = drawn(3, modulus=1.0), drawn(9, 3)
    results = []
    for f in (scan, loop):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(a, torch.ones_like(a)).requires_grad_()
            gradient = torch.autograd.grad(f(dual, b).square().sum(), dual)[0]
            results.append(forward_ad.unpack_dual(gradient).tangent)
    assert torch.allclose(*results)


def test_compiled_whole(monkeypatch):
    a, b = drawn(3, modulus=1.0).requires_grad_(), drawn(2, 9, 3).requires_grad_()
    given: dict[str, Any] = {"initial": drawn(2, 3), "reset": torch.rand(2, 9) < 0.3}

    def total(a, b):
        return scan(a.tanh(), b, **given, reverse=True).square().sum()

    compiled = torch.compile(total, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(a, b), total(a, b))
    for mine, other in zip(
        torch.autograd.grad(compiled(a, b), (a, b)),
        torch.autograd.grad(total(a, b), (a, b)),
        strict=True,
    ):
        assert torch.allclose(mine, other)


def test_the_operator_passes_torchs_own_checks():
    a, b = drawn(1, 1, 3, modulus=1.0).requires_grad_(), drawn(2, 9, 3).requires_grad_()
    given = (a, b, drawn(2, 1, 3).requires_grad_(), torch.rand(2, 9, 1) < 0.3, False, False)
    torch.library.opcheck(torch.ops.vademecum.linear_scan.default, given)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_gradients_of_more_steps_than_a_block_has(reverse, constant):
    T, D = 90, 512  # 4 sequences: blocks of 16 steps
    a = drawn(*(() if constant else (4, T)), D, modulus=1.0).requires_grad_()
    b, initial = drawn(4, T, D).requires_grad_(), drawn(4, D).requires_grad_()
    reset, G = torch.rand(4, T) < 0.1, drawn(4, T, D)
    given: dict[str, Any] = {"initial": initial, "reset": reset, "reverse": reverse}
    ours, wanted = (f(a, b, **given) for f in (scan, loop))
    assert torch.allclose(ours, wanted, rtol=1e-13, atol=1e-13)
    found, right = (torch.autograd.grad(h, (a, b, initial), G) for h in (ours, wanted))
    for one, other in zip(found, right, strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12 * float(other.abs().max()))
