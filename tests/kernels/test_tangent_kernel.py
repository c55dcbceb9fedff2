"""Tangent kernels against gradients that autograd and torch.func take one by one."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.gradients.nets import NETS, call, make, one, slowly
from vademecum.kernels import _tangent_passes, empirical_ntk
from vademecum.testing import check_instrument
from vademecum.testing.laws import changes, snapshot

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even")

OUTPUTS = ("full", "diagonal", "trace", "sum")


def rows(net, x):
    """The gradients (n, k, P) from a backward pass for each output of each example."""
    parameters, found = list(net.parameters()), []
    z = call(net, x)
    for entry in z.flatten():
        each = torch.autograd.grad(
            entry, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        found.append(torch.cat([g.flatten().double() for g in each]))
    return torch.stack(found).view(len(z), -1, found[0].numel())


def kernel(J, L, outputs="full"):
    """The kernel of gradients, by its definition."""
    K = torch.einsum("icp,jdp->ijcd", J, L)
    diagonal = K.diagonal(dim1=2, dim2=3)
    return {
        "full": K,
        "diagonal": diagonal,
        "trace": diagonal.sum(-1),
        "sum": K.sum((2, 3)),
    }[outputs]


def close(found, wanted, tol=1e-10):
    assert found.shape == wanted.shape
    scale = float(wanted.abs().max())
    torch.testing.assert_close(found.double(), wanted.double(), rtol=0, atol=tol * scale)


@pytest.mark.parametrize("name", NETS)
def test_every_kind_of_layer(name):
    net, x, _ = make(name, 5)
    other = NETS[name][1](4)
    J, L = rows(net, x), rows(net, other)
    before = snapshot(net.train())
    tol = 1e-5 if name == "two precisions" else 1e-10
    with slowly(name == "recurrent"):
        for outputs in OUTPUTS:
            close(empirical_ntk(net, x, outputs=outputs), kernel(J, J, outputs), tol)
            close(empirical_ntk(net, x, other, outputs=outputs), kernel(J, L, outputs), tol)
    assert not list(changes(before, snapshot(net)))


def test_torch_func():
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(),
                        nn.Linear(12, 4)).double()  # fmt: skip
    x, parameters = torch.randn(6, 2, 4, 4).double(), dict(net.eval().named_parameters())

    def of_one(p, x):
        return torch.func.functional_call(net, p, (x[None],))[0]

    found = torch.func.vmap(torch.func.jacrev(of_one), (None, 0))(parameters, x)
    J = torch.cat([each.flatten(2) for each in found.values()], 2).detach()
    close(empirical_ntk(net, x), kernel(J, J))
    close(empirical_ntk(net, x[:2], x[2:]), kernel(J[:2], J[2:]))


@pytest.mark.parametrize("n", [1, 2, 300])
@pytest.mark.parametrize("k", [1, 2, 11])
def test_half_of_the_work(n, k):
    """In blocks of examples or of outputs, and with one example or output alone."""
    net, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, k)).double(), torch.randn(n, 3)
    x = x.double()
    if n * k > 600:
        n, x = 40, x[:40]
    J = rows(net, x)
    for outputs in OUTPUTS:
        found = empirical_ntk(net, x, outputs=outputs)
        close(found, kernel(J, J, outputs))
        mirror = found.transpose(0, 1)
        close(found, mirror.transpose(2, 3) if outputs == "full" else mirror, 1e-14)
    flat = empirical_ntk(net, x).transpose(1, 2).reshape(n * k, n * k)
    lam = torch.linalg.eigvalsh(flat)
    assert float(lam[0]) >= -1e-13 * float(lam[-1])


def test_frozen_parameters_count_unless_told_otherwise():
    net, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double(), torch.randn(5, 3)
    J = rows(net, x.double())
    net[0].requires_grad_(False)
    close(empirical_ntk(net, x.double()), kernel(J, J))
    last = J[:, :, 16:]
    close(empirical_ntk(net, x.double(), frozen=False), kernel(last, last))


def test_half_precision_gives_single():
    net, x = nn.Linear(3, 2).bfloat16(), torch.randn(4, 3).bfloat16()
    found = empirical_ntk(net, x, outputs="trace")
    wanted = 2 * (x.double() @ x.double().T + 1)
    assert found.dtype == torch.float32
    close(found, wanted, 1e-6)


class Logits(nn.Module):
    """Gives an object with logits, as transformers do, beside what does not count."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2).double()

    def forward(self, u):
        z = self.inner(u).tanh()
        return SimpleNamespace(logits=z, hidden=z[:, :1])


def test_logits_and_other_outputs():
    net, x = Logits(), {"u": torch.randn(5, 3).double()}
    plain = nn.Sequential(net.inner, nn.Tanh())
    J = rows(plain, x["u"])
    close(empirical_ntk(net, x), kernel(J, J))
    close(empirical_ntk(net, x, output="hidden"), kernel(J[:, :1], J[:, :1]))


def test_only_the_rest_goes_through_torch_func(monkeypatch):
    """The cell of a recurrent network has no rule, its head has."""
    asked = []

    def spy(f, *args, **kwargs):
        asked.append({name.partition(".")[0] for name in f.parameters})
        return plain(f, *args, **kwargs)

    plain = _tangent_passes.mapped_derivatives
    monkeypatch.setattr(_tangent_passes, "mapped_derivatives", spy)
    net, x, _ = make("recurrent", 4)
    J = rows(net, x)
    with slowly(True):
        close(empirical_ntk(net, x), kernel(J, J))
    assert asked == [{"cell"}]


class Unless(nn.Module):
    """Centres the examples of large batches, which is found out in the full pass alone."""

    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.Linear(3, 4), nn.Linear(4, 2)
        nn.init.zeros_(self.out.weight)

    def forward(self, x):
        h = self.layer(x)
        return self.out((h - h.mean(0) * (len(x) > 3)).tanh())


def test_examples_that_change_what_layers_see_go_by_themselves():
    """Their outputs are the same, since the last layer is zero."""
    net, x = Unless().double(), torch.randn(6, 3).double()
    J = torch.cat([rows(net, one(x, i)) for i in range(6)])
    close(empirical_ntk(net, x), kernel(J, J))


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_laws(outputs):
    without = {"no_parameters": "there is nothing to differentiate in"}
    instrument = partial(empirical_ntk, outputs=outputs)
    check_instrument(instrument, nn.Linear(5, 3), torch.randn(6, 5), skip=without)


def test_permuted_examples_give_the_permuted_kernel():
    net, x, _ = make("norms", 6)
    order = torch.randperm(6)
    K = empirical_ntk(net, x)
    close(empirical_ntk(net, x[order]), K[order][:, order], 1e-13)
    close(empirical_ntk(net, x, x[order]), K[:, order], 1e-13)
