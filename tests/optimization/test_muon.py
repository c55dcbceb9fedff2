"""Muon against its equations written densely, and torch's Muon."""

import copy
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import vademecum
from vademecum.optimization import Muon, orthogonalize


def svd_factor(M):
    U, _, Vh = torch.linalg.svd(M, full_matrices=False)
    return U @ Vh


def run(params, gradients, **knobs):
    optimizer = Muon(params, **knobs)
    for grads in gradients:
        for p, g in zip(params, grads, strict=True):
            p.grad = g.clone()
        optimizer.step()
    return optimizer


FACTORS = {
    "spectral": lambda m, n: math.sqrt(m / n),
    "original": lambda m, n: math.sqrt(max(1, m / n)),
    "rms": lambda m, n: 0.2 * math.sqrt(max(m, n)),
}


@pytest.mark.parametrize("scale", FACTORS)
@pytest.mark.parametrize("nesterov", [False, True])
def test_muon_follows_its_equations(scale, nesterov):
    shapes = [(4, 7), (7, 4), (4, 7), (5, 5)]
    params = [torch.randn(s, dtype=torch.float64) for s in shapes]
    gradients = [[torch.randn_like(p) for p in params] for _ in range(3)]
    wanted = [p.clone() for p in params]
    momenta = [torch.zeros_like(p) for p in params]
    for grads in gradients:
        for i, g in enumerate(grads):
            momenta[i] = 0.8 * momenta[i] + g
            M = g + 0.8 * momenta[i] if nesterov else momenta[i]
            step = 0.3 * FACTORS[scale](*shapes[i]) * svd_factor(M)
            wanted[i] = (1 - 0.3 * 0.1) * wanted[i] - step
    knobs = {"lr": 0.3, "momentum": 0.8, "weight_decay": 0.1, "method": "svd"}
    run(params, gradients, scale=scale, nesterov=nesterov, **knobs)
    torch.testing.assert_close(params, wanted, rtol=0, atol=1e-12)


def test_method_and_steps_are_those_of_orthogonalize():
    cases: list[dict[str, Any]] = [
        {"method": "polar_express", "steps": 4},
        {"method": "newton_schulz"},
    ]
    for knobs in cases:
        G = torch.randn(3, 6, dtype=torch.float64)
        p = torch.zeros_like(G)
        run([p], [[G]], lr=1.0, scale="original", **knobs)
        torch.testing.assert_close(p, -orthogonalize(G, **knobs))


def test_axes_of_kernels_and_stacks():
    G = torch.randn(4, 3, 2, 5, dtype=torch.float64)
    knobs = {"lr": 1.0, "method": "svd"}

    def step(**more):
        p = torch.zeros_like(G)
        run([p], [[G]], **knobs, **more)
        return -p

    kernel = svd_factor(G.reshape(4, 30)).view_as(G) * math.sqrt(4 / 30)
    torch.testing.assert_close(step(), kernel)
    turned = svd_factor(G.transpose(0, 1).reshape(3, 40)).view(3, 4, 2, 5).transpose(0, 1)
    torch.testing.assert_close(step(transposed=True), turned * math.sqrt(3 / 40))
    torch.testing.assert_close(step(stacked=True), svd_factor(G) * math.sqrt(2 / 5))
    stack = step(stacked=True, transposed=True)
    torch.testing.assert_close(stack, svd_factor(G) * math.sqrt(5 / 2))


@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (32, 32)])
def test_torch_takes_the_same_step_up_to_bfloat16_and_the_factor(shape):
    start = torch.randn(shape)
    gradients = [[torch.randn(shape)] for _ in range(3)]
    theirs, ours, course = start.clone(), start.clone(), start.clone()
    peer = torch.optim.Muon([theirs], lr=0.1, momentum=0.9)  # decays by 0.1, looks ahead
    for (g,) in gradients:
        theirs.grad = g.clone()
        peer.step()
    same = {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}
    run([ours], gradients, scale="original", **same)
    moved = (start - theirs).norm()
    assert (ours - theirs).norm() < 0.03 * moved  # bfloat16 has 8 bits
    factor = min(1.0, math.sqrt(shape[0] / shape[1]))  # below the original for wide matrices
    run([course], gradients, **same)
    decay = 0.99**3 * start
    if factor < 1:
        assert (course - decay - factor * (ours - decay)).norm() < 1e-5 * moved
    else:
        assert course.equal(ours)


def test_torch_stops_moving_where_gradients_are_tiny_and_ours_does_not():
    G = torch.randn(8, 8)
    for scale, theirs_moves in ((1.0, True), (1e-12, False)):
        theirs, ours = torch.zeros(8, 8), torch.zeros(8, 8)
        theirs.grad = scale * G
        torch.optim.Muon([theirs], lr=1.0).step()
        run([ours], [[scale * G]], lr=1.0)
        assert (theirs.norm() > 1) == theirs_moves
        assert ours.norm() > 1


def test_one_by_one_is_the_same_and_so_are_portions(monkeypatch):
    shapes = [(4, 6)] * 5
    gradients = [[torch.randn(s) for s in shapes]]
    results = []
    for company, foreach in ((2**25, None), (2**25, False), (48, None), (10, True)):
        monkeypatch.setattr("vademecum.optimization.muon._COMPANY", company)
        params = [torch.ones(s) for s in shapes]
        run(params, gradients, lr=0.1, foreach=foreach)
        results.append(params)
    for other in results[1:]:
        torch.testing.assert_close(results[0], other)


def test_groups_tensor_rates_closures_and_climbing():
    a, b = (nn.Parameter(torch.zeros(2, 3)) for _ in range(2))
    groups = [{"params": [a]}, {"params": [b], "lr": torch.tensor(0.5), "maximize": True}]
    optimizer = Muon(groups, lr=1.0, scale="original", method="svd")
    G = torch.randn(2, 3)

    def closure():
        optimizer.zero_grad()
        loss = (G * (a + b)).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == 0
    torch.testing.assert_close(a.detach(), -svd_factor(G))
    torch.testing.assert_close(b.detach(), 0.5 * svd_factor(G))


def test_state_goes_on_bitwise():
    shapes = [(3, 5), (5, 3)]
    grads = [[torch.randn(s) for s in shapes] for _ in range(4)]
    params = [torch.ones(s) for s in shapes]
    run(params, grads, lr=0.1)
    half = [torch.ones(s) for s in shapes]
    saved = run(half, grads[:2], lr=0.1).state_dict()
    kept = copy.deepcopy(saved)
    other = Muon(half, lr=0.7)
    other.load_state_dict(saved)
    for g in grads[2:]:
        for p, piece in zip(half, g, strict=True):
            p.grad = piece
        other.step()
    assert all(p.equal(q) for p, q in zip(params, half, strict=True))
    for i in (0, 1):
        assert saved["state"][i]["momentum_buffer"].equal(kept["state"][i]["momentum_buffer"])


def test_nothing_moves_for_gradients_that_are_zero_or_not_finite():
    p, q = torch.ones(2, 3), torch.ones(3, 2)
    optimizer = Muon([p, q], lr=0.1)
    p.grad, q.grad = torch.zeros(2, 3), torch.zeros(3, 2)
    optimizer.step()
    assert p.equal(torch.ones(2, 3))
    p.grad, q.grad = torch.ones(2, 3), torch.full((3, 2), torch.nan)
    with pytest.raises(ValueError, match="gradient of parameter 1 of group 0 must be finite"):
        optimizer.step()
    assert p.equal(torch.ones(2, 3))
    assert not any(s["momentum_buffer"].any() for s in optimizer.state.values())


@pytest.mark.parametrize(
    ("params", "knobs", "message"),
    [
        ([torch.ones(3)], {}, r"params must have at least 2 axes, got shape \(3,\)"),
        ([torch.ones(2, 2, dtype=torch.complex64)], {}, "params must be real, got torch.complex64"),
        ([torch.ones(2, 2)], {"lr": -0.1}, "lr must be >= 0, got -0.1"),
        ([torch.ones(2, 2)], {"lr": torch.ones(2)}, "lr must be a number, got a tensor"),
        ([torch.ones(2, 2)], {"momentum": 1.0}, "momentum must be < 1, got 1.0"),
        ([torch.ones(2, 2)], {"weight_decay": -1.0}, "weight_decay must be >= 0, got -1.0"),
        ([torch.ones(2, 2)], {"method": "qr"}, "method must be one of .*, got 'qr'"),
        ([torch.ones(2, 2)], {"scale": "max"}, "scale must be one of .*, got 'max'"),
        ([torch.ones(2, 2)], {"steps": 0}, "steps must be >= 1, got 0"),
        ([torch.ones(2, 2)], {"dtype": torch.int8}, "dtype must be a floating-point dtype"),
    ],
)
def test_bad_input(params, knobs, message, unchecked):
    for p in params:
        p.requires_grad_()
    with pytest.raises(ValueError, match=message):
        Muon(params, **({"lr": 0.1} | knobs))


SHARDED = """
    import torch, torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from vademecum.optimization import Muon

    def work(rank, port):
        dist.init_process_group("gloo", init_method=f"file://{port}", rank=rank, world_size=2)
        mesh = dist.init_device_mesh("cpu", (2,))
        torch.manual_seed(0)
        shapes = [(5, 4), (4, 6), (3, 3)]
        whole = [torch.randn(s).requires_grad_() for s in shapes]
        placements = [[Shard(0)], [Shard(1)], [Replicate()]]
        parts = [
            distribute_tensor(p.detach(), mesh, place).requires_grad_()
            for p, place in zip(whole, placements)
        ]
        one, two = (Muon(params, lr=0.1, weight_decay=0.1) for params in (whole, parts))
        for _ in range(3):
            for p, q, place in zip(whole, parts, placements):
                p.grad = torch.randn(p.shape)
                q.grad = distribute_tensor(p.grad, mesh, place)
            one.step()
            two.step()
        gaps = [(p - q.full_tensor()).abs().max().item() for p, q in zip(whole, parts)]
        assert max(gaps) < 1e-6, gaps
        dist.destroy_process_group()

    if __name__ == "__main__":
        import sys
        mp.spawn(work, (sys.argv[1],), nprocs=2)
"""


@pytest.mark.slow
def test_two_processes_take_the_step_of_one(tmp_path):
    script = tmp_path / "sharded.py"
    script.write_text(textwrap.dedent(SHARDED))
    command = [sys.executable, str(script), str(tmp_path / "meeting")]
    env = os.environ | {"PYTHONPATH": str(Path(vademecum.__file__).parents[1])}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=env
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("nesterov", [False, True])
def test_off_the_cpu_a_void_step_leaves_momentum_and_matrices(nesterov, monkeypatch):
    shape, knobs = (4, 3), {"lr": 0.1, "weight_decay": 0.1, "nesterov": nesterov}
    good, other = torch.randn(shape), torch.randn(shape)
    wanted, p = torch.ones(shape), torch.ones(shape)
    run([wanted], [[good], [other]], **knobs)
    monkeypatch.setattr("vademecum.optimization._stepping._may_not_wait", lambda device: True)
    optimizer = Muon([p], **knobs)
    for gradient in (good, torch.full(shape, torch.nan), other):
        p.grad = gradient.clone()
        optimizer.step()
        optimizer._pending = ()  # the host has not heard of it
    torch.testing.assert_close(p, wanted)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_void_step_on_an_accelerator():
    p = torch.ones(4, 3, device="cuda")
    optimizer = Muon([p], lr=0.1, weight_decay=0.1)
    p.grad = torch.full_like(p, torch.nan)
    optimizer.step()
    torch.cuda.synchronize()
    assert p.equal(torch.ones_like(p))
    assert not optimizer.state[p]["momentum_buffer"].any()
    with pytest.raises(ValueError, match="must be finite"):
        optimizer.step()
