"""Optimisers of sharded parameters: one process with a mesh of one, and two processes."""

import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = textwrap.dedent("""
    import copy, sys
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch import nn
    from vademecum.foundations import Ball
    from vademecum.optimization import SVRG, HeavyBall, Nesterov, ProjectedSGD, SignSGD

    dist.init_process_group("gloo")
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    KINDS = {
        "HeavyBall": lambda p, f: HeavyBall(p, lr=0.1),
        "Nesterov": lambda p, f: Nesterov(p, lr=0.1),
        "SignSGD": lambda p, f: SignSGD(p, lr=0.1),
        "ProjectedSGD": lambda p, f: ProjectedSGD(
            p, lr=0.1, project=Ball(torch.zeros(17).double(), 1.5)
        ),
        "SVRG": lambda p, f: SVRG(p, lr=0.1, period=2, full_closure=f, snapshot="average"),
    }

    def tensors():
        w = torch.linspace(-1, 2, 15, dtype=torch.float64).reshape(5, 3)
        return w, torch.tensor([0.5, -0.5], dtype=torch.float64)

    def closure_of(params):
        def closure():
            for p in params:
                p.grad = None
            loss = sum(p.square().sum() * (i + 1) for i, p in enumerate(params))
            loss.backward()
            return loss.full_tensor() if hasattr(loss, "full_tensor") else loss
        return closure

    for name, make in KINDS.items():
        plain = [nn.Parameter(x) for x in tensors()]
        places = ([Shard(0)], [Replicate()])
        ours = [
            nn.Parameter(distribute_tensor(x, mesh, place))
            for x, place in zip(tensors(), places)
        ]
        one, other = (make(ps, closure_of(ps)) for ps in (plain, ours))
        for t in range(5):
            one.step(closure_of(plain))
            other.step(closure_of(ours))
        for p, q in zip(plain, ours):
            torch.testing.assert_close(q.detach().full_tensor(), p.detach(), rtol=1e-12, atol=1e-12)
        other.load_state_dict(other.state_dict())
        other.step(closure_of(ours))
        before = [q.detach().full_tensor() for q in ours]

        def spoiled():
            loss = closure_of(ours)()
            if dist.get_rank() == size - 1:
                ours[0].grad.to_local()[-1, 0] = torch.nan
            return loss
        try:
            other.step(spoiled)
        except ValueError as error:  # in every process
            assert "parameter 0 of group 0 must be finite" in str(error), error
        else:
            raise AssertionError(name)
        for old, q in zip(before, ours):
            assert torch.equal(old, q.detach().full_tensor()), name
    print("alike")
    dist.destroy_process_group()
""")


def started(rank: int, size: int, port: int) -> subprocess.Popen[str]:
    own = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    env = {**os.environ, **{k: str(v) for k, v in own.items()}, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error::UserWarning:vademecum", "-c", SCRIPT]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)  # fmt: skip


def free_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_sharded_parameters_take_the_same_steps(size):
    port = free_port()
    processes = [started(rank, size, port) for rank in range(size)]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert "alike" in out
