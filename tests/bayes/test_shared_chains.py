"""Chains shared out among devices and processes, and energies of some chains at a time."""

import os
import subprocess
import sys
import textwrap
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.bayes.test_sampling import COV, PRECISION, within
from tests.optimization.test_sharded import free_port
from vademecum.bayes import posterior, sample
from vademecum.bayes.sampling._teams import Member, on_devices
from vademecum.models import mlp, peak_bytes

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TWO = ("cpu", "cpu")


def gaussian(theta: Tensor) -> Tensor:
    return ((theta @ PRECISION.to(theta)) * theta).sum(1) / 2


KERNELS = ["nuts", "hmc", "chees", "mala", "mh"]


@pytest.mark.parametrize(
    ("kernel", "metric"), [*((kernel, "diagonal") for kernel in KERNELS), ("hmc", "dense")]
)
def test_chains_on_several_devices_have_the_law(kernel, metric):
    draws = {"nuts": 12, "hmc": 30, "chees": 50}.get(kernel, 120)
    start = torch.randn(41, 2).double() @ torch.linalg.cholesky(COV).T
    dice = [torch.Generator().manual_seed(3) for _ in range(2)]
    knobs: Any = {"kernel": kernel, "draws": draws, "warmup": 60, "metric": metric, "max_rhat": 9,
                  "devices": ("cpu", "cpu", "cpu"), "leapfrogs": 4}  # fmt: skip
    one, two = (sample(gaussian, start, generator=g, **knobs) for g in dice)
    assert one.draws.shape == (41, draws, 2)
    assert within(torch.einsum("cti,ctj->cij", one.draws, one.draws) / draws, COV)
    torch.testing.assert_close(one.energies[:, -1], gaussian(one.last))
    torch.testing.assert_close(one.draws[:, -1], one.last)
    assert one.draws.equal(two.draws)  # from the generator alone
    assert len(one.last.unique(dim=0)) == 41  # streams of their own
    assert isinstance(one.mass, Tensor)
    assert one.mass.shape == ((2,) if metric == "diagonal" else (2, 2))


def test_members_learn_from_all_chains():
    """Sums of members are the sums over all rows."""
    rows = torch.randn(7, 3).double()

    def work(member: Member, energy: Any, theta: Tensor, generator: Any) -> Any:
        assert theta.equal(rows[member.rows])
        assert member.chains == 7
        return member.total(theta.sum(0)), member.mean(theta), member.gathered(theta)

    total, mean, all_ = on_devices(work, None, rows, None, ("cpu",) * 3)
    torch.testing.assert_close(total, rows.sum(0))
    torch.testing.assert_close(mean, rows.mean(0))
    assert all_.equal(rows)


@pytest.mark.parametrize("kernel", ["hmc", "chees"])
def test_a_share_that_needs_small_steps_slows_all_down(kernel):
    """Acceptance is that of all chains: half of them are in a narrow well."""

    def wells(theta: Tensor) -> Tensor:
        far = theta[:, 0] > 50
        return torch.where(far, 1e4 * (theta[:, 0] - 100) ** 2, theta[:, 0] ** 2) / 2

    start = torch.zeros(8, 1).double()
    start[4:] = 100.0
    knobs: Any = {"kernel": kernel, "draws": 1, "warmup": 15, "metric": "fixed"}
    alone, both = sample(wells, start[:4], **knobs), sample(wells, start, devices=TWO, **knobs)
    assert both.eta < alone.eta / 5


@pytest.mark.filterwarnings("ignore:.*divergent step")
def test_the_mass_is_that_of_all_chains():
    """Two wells far apart, one for each share: only together they have a large variance."""

    def wells(theta: Tensor) -> Tensor:
        return (theta[:, 0].abs() - 100) ** 2 / 2

    start = torch.tensor([[-100.0], [-100.0], [100.0], [100.0]]).double()
    found = sample(wells, start, kernel="mh", draws=1, warmup=60, devices=TWO)
    assert float(1 / found.mass) == pytest.approx(1e4, rel=0.1)


def test_the_split_r_is_that_of_all_chains():
    found = sample(gaussian, torch.randn(5, 2).double(), kernel="mh", draws=41, warmup=10,
                   max_rhat=9, devices=TWO)  # fmt: skip
    halves = torch.cat([found.draws[:, :20], found.draws[:, 21:]])
    inside, between = halves.var(1).mean(0), halves.mean(1).var(0)
    assert found.rhat == pytest.approx(float((19 / 20 + between / inside).sqrt().max()))


def test_keep_and_one_file_for_all(tmp_path):
    dice = [torch.Generator().manual_seed(1) for _ in range(3)]
    start = torch.randn(5, 2).double()
    knobs: Any = {"kernel": "hmc", "draws": 12, "warmup": 5, "devices": TWO}
    plain = sample(gaussian, start, generator=dice[0], **knobs)
    file = sample(gaussian, start, generator=dice[1], out=tmp_path / "draws.npy", **knobs)
    np.testing.assert_array_equal(np.load(tmp_path / "draws.npy"), plain.draws.numpy())
    assert file.draws.equal(plain.draws)
    kept = sample(gaussian, start, generator=dice[2], keep=lambda t: t.sum(1), **knobs)
    torch.testing.assert_close(kept.draws, plain.draws.sum(2))


def test_divergences_and_failures_have_the_places_of_all_chains():
    def cliff(t: Tensor) -> Tensor:
        bad = torch.where(t[:, 0] > 5.5, torch.nan, t[:, 0] ** 2)
        return torch.where((t[:, 0] > 0.3) & (t[:, 0] < 5), 1e5 * (t[:, 0] - 0.3), bad)

    start = torch.tensor([[0.0], [0.0], [0.0], [5.4]]).double()
    with pytest.warns(UserWarning, match=r"divergent step|NaN or infinite"):
        found = sample(cliff, start, kernel="mh", draws=60, warmup=0, eta=0.5, metric="fixed",
                       max_rhat=torch.inf, devices=TWO)  # fmt: skip
    assert found.failures[:3].sum() == 0
    assert found.failures[3] > 0
    assert set(found.divergences[:, 0].tolist()) <= {0, 1, 2, 3}
    for chain, draw in found.divergences.tolist():
        assert draw == 0 or found.draws[chain, draw].equal(found.draws[chain, draw - 1])


def test_the_energy_of_a_posterior_is_copied_to_each_device():
    x, y = torch.randn(30, 3).double(), torch.randn(30, 1).double()
    model = mlp([3, 4, 1]).double()
    energy = posterior(model, x, y, likelihood="gaussian", noise=torch.full((1,), 0.5).double(),
                       prior=torch.linspace(1, 2, 21).double(), batch=7,
                       control=torch.zeros(21).double())  # fmt: skip
    copy = energy.on("cpu")
    theta = torch.randn(4, 21).double()
    assert copy(theta).equal(energy(theta))
    assert copy.theta.data_ptr() != energy.theta.data_ptr()
    dice = [torch.Generator().manual_seed(0) for _ in range(2)]
    one, two = (e.estimate(theta, generator=g) for e, g in zip((energy, copy), dice, strict=True))
    assert one.gradient.equal(two.gradient)
    found = sample(energy, 0.1 * torch.randn(6, 21).double(), kernel="sgld", eta=1e-4, draws=3,
                   warmup=2, devices=TWO)  # fmt: skip
    assert found.draws.shape == (6, 3, 21)


def network(width: int = 32) -> Any:
    x, y = torch.randn(200, 5).double(), torch.randn(200, 1).double()
    model = nn.Sequential(nn.Linear(5, width), nn.LayerNorm(width), nn.Tanh(), nn.Linear(width, 1))
    return posterior(model.double(), x, y, likelihood="gaussian", batch=50)


@pytest.mark.parametrize(
    ("kernel", "plain"),
    [*((kernel, False) for kernel in (*KERNELS, "ula", "sgld", "sghmc")), ("hmc", True)],
)
def test_memory_limits_are_kept(kernel, plain):
    energy = network()
    start = 0.1 * torch.randn(24, energy.size).double()
    function = (lambda t: energy(t)) if plain else energy  # the first hides methods
    knobs: Any = {"kernel": kernel, "eta": 1e-4, "draws": 2, "warmup": 3, "max_rhat": 9,
                  "leapfrogs": 3, "max_depth": 3, "max_leapfrogs": 4}  # fmt: skip
    limit, found, dice = 2**22, [], [torch.Generator().manual_seed(5) for _ in range(2)]
    peaks = [
        peak_bytes(lambda g=g, m=m: found.append(
            sample(function, start, memory=m, generator=g, **knobs)))
        for g, m in zip(dice, (None, limit), strict=True)
    ]  # fmt: skip
    whole, portioned = found
    result = portioned.draws.nbytes + portioned.last.nbytes + 24 * 3 * 8
    assert peaks[1] - result <= limit < peaks[0] - result
    if kernel not in ("nuts", "sgld", "sghmc") or plain:  # others draw in another order
        torch.testing.assert_close(portioned.draws, whole.draws)


@pytest.mark.usefixtures("unchecked")
def test_errors():
    at, wrong = torch.zeros(3, 2).double(), cast("Any", "wrong")

    def edge(t: Tensor) -> Tensor:
        return torch.where(t[:, 0] > 0, torch.inf, 0 * t[:, 0])

    beyond = torch.tensor([[0.0], [0.0], [1.0]]).double()
    knobs: Any = {"draws": 1, "warmup": 0}
    table = [
        (lambda: sample(gaussian, at, devices=wrong), "devices must be one of 'ranks', got 'wro"),
        (lambda: sample(gaussian, at, devices="ranks"), "where torch.distributed is not initialis"),
        (lambda: sample(gaussian, at, devices=()), "devices must be at least one, got none"),
        (lambda: sample(gaussian, at, devices=4 * ("cpu",)),
         "start must have a chain for each of 4 devices, got 3"),
        (lambda: sample(edge, beyond, devices=TWO), "finite energies, got inf at chain 2"),
        (lambda: sample(gaussian, at, memory=0), r"memory must be >= 1, got 0"),
        (lambda: sample(gaussian, at, memory=100),
         r"memory must be >= \d+ bytes for the state of 3 chains and the energy of one, got 100"),
        (lambda: sample(gaussian, at, devices=TWO, keep=lambda t: t[:1], **knobs),
         "keep must give a tensor with a row for each of 2 chains"),
    ]  # fmt: skip
    for act, message in table:
        with pytest.raises(ValueError, match=message):
            act()


SCRIPT = textwrap.dedent("""
    import sys
    import numpy as np
    import torch
    import torch.distributed as dist
    from vademecum.bayes import sample

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    COV = torch.tensor([[1.0, 1.2], [1.2, 4.0]]).double()
    P = torch.linalg.inv(COV)
    energy = lambda t: ((t @ P) * t).sum(1) / 2
    start = torch.randn(9, 2, generator=torch.Generator().manual_seed(0)).double()
    for kernel in ("nuts", "chees", "mh", "sgld"):
        torch.manual_seed(rank)  # seeds of processes may differ: the first one's counts
        knobs = dict(kernel=kernel, eta=0.3, draws=40, warmup=60, max_rhat=9)
        found = sample(energy, start, devices="ranks", **knobs)
        assert found.draws.shape == (9, 40, 2)
        torch.testing.assert_close(found.energies[:, -1], energy(found.last))
        assert len(found.last.unique(dim=0)) == 9
        halves = torch.cat([found.draws[:, :20], found.draws[:, 20:]])
        inside, between = halves.var(1).mean(0), halves.mean(1).var(0)
        wanted = float((19 / 20 + between / inside).sqrt().max())
        assert abs(found.rhat - wanted) < 1e-9, (found.rhat, wanted)
        same = [None] * dist.get_world_size()
        dist.all_gather_object(same, (found.draws.tolist(), found.eta, found.acceptance.tolist()))
        assert all(s == same[0] for s in same)
        # the same chains as on so many devices of one process
        torch.manual_seed(0)
        once = sample(energy, start, devices=["cpu"] * dist.get_world_size(), **knobs)
        torch.testing.assert_close(once.draws, found.draws)
        assert once.eta == found.eta
    path = sys.argv[1]
    torch.manual_seed(0)
    file = sample(energy, start, kernel="hmc", draws=5, warmup=5, devices="ranks", out=path)
    torch.manual_seed(0)
    plain = sample(energy, start, kernel="hmc", draws=5, warmup=5, devices="ranks")
    assert file.draws.equal(plain.draws)
    dist.barrier()
    assert np.array_equal(np.load(path), plain.draws.numpy())

    def refused(message, *args, **knobs):
        try:
            sample(*args, devices="ranks", **knobs)
        except ValueError as error:
            assert message in str(error), error
        else:
            raise AssertionError(message)

    refused("start must be the same in all processes", energy, start + rank)
    refused("start must be the same in all processes", energy, start.roll(rank, 0))
    refused("start must have a chain for each of", energy, start[:1])
    spoiled = start.clone()
    spoiled[-1, 0] = 100.0
    cut = lambda t: torch.where(t[:, 0] > 50, torch.inf, energy(t))
    refused("start must have finite energies, got inf at chain 8", cut, spoiled)
    print("alike")
    dist.destroy_process_group()
""")


@pytest.mark.slow
def test_processes_share_the_chains(tmp_path):
    port, processes = free_port(), []
    for rank in range(2):
        own = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        env = {**os.environ, **{k: str(v) for k, v in own.items()}, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / "draws.npy")]
        processes.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True))  # fmt: skip
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert "alike" in out


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["nuts", "chees", "sghmc"])
@pytest.mark.filterwarnings("ignore:.*divergent step")  # two draws with a step that two draws chose
def test_devices_of_two_kinds(kernel):
    found = sample(gaussian, torch.zeros(60, 2).double(), kernel=kernel, draws=40, warmup=60,
                   eta=0.1, thin=2, max_rhat=9, devices=("cuda", "cpu", "cuda"))  # fmt: skip
    assert not found.draws.is_cuda
    if kernel != "sghmc":
        assert within(torch.einsum("cti,ctj->cij", found.draws, found.draws) / 40, COV)
    energy = network()
    start = 0.1 * torch.randn(6, energy.size).double()
    moved = sample(energy, start, kernel="hmc", draws=2, warmup=2, devices=("cuda", "cpu"))
    torch.testing.assert_close(moved.energies[:, -1], energy(moved.last))
