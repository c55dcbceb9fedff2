"""Tangent kernels on a GPU: the numbers of the CPU, where the model is."""

import pytest
import torch
from torch import nn

from tests.gradients.nets import NETS, make
from tests.kernels.test_tangent_kernel import OUTPUTS, close
from vademecum.kernels import empirical_ntk, kernel_alignment, ntk_operator, ntk_spectrum
from vademecum.models import map_tensors

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Using padding='same' with even"),
]


def there(x):
    return map_tensors(x, lambda t: t.cuda())


@pytest.mark.parametrize("name", sorted(NETS.keys() - {"recurrent", "two precisions"}))
def test_every_kind_of_layer(name):
    net, x, _ = make(name, 5)
    other = NETS[name][1](4)
    wanted = [
        (empirical_ntk(net, x, outputs=outputs), empirical_ntk(net, x, other, outputs=outputs))
        for outputs in OUTPUTS
    ]
    net, x, other = net.cuda(), there(x), there(other)
    for outputs, (one, two) in zip(OUTPUTS, wanted, strict=True):
        found = empirical_ntk(net, x, outputs=outputs)
        assert found.is_cuda
        close(found.cpu(), one)
        close(empirical_ntk(net, x, other, outputs=outputs).cpu(), two)


def test_tokens_of_a_large_vocabulary():
    net = nn.Sequential(nn.Embedding(5000, 8), nn.Flatten(), nn.Tanh(), nn.Linear(80, 3)).double()
    x = torch.randint(5000, (40, 10))
    wanted = empirical_ntk(net, x)
    close(empirical_ntk(net.cuda(), x.cuda()).cpu(), wanted)


def test_operators_spectra_and_alignment():
    net, x, _ = make("planar", 6)
    K, v = empirical_ntk(net, x), torch.randn(18).double()
    spectrum, product = ntk_spectrum(net, x), ntk_operator(net, x) @ v
    y = torch.randn(6, 3).double()
    aligned = kernel_alignment(K, y, centered=True)
    net, x = net.cuda(), x.cuda()
    close((ntk_operator(net, x) @ v.cuda()).cpu(), product)
    close(ntk_spectrum(net, x).eigenvalues.cpu(), spectrum.eigenvalues)
    few = ntk_spectrum(net, x, count=2, generator=torch.Generator("cuda").manual_seed(0))
    close(few.eigenvalues.cpu(), spectrum.eigenvalues[:2], 1e-8)
    found = kernel_alignment(empirical_ntk(net, x), y.cuda(), centered=True)
    close(found.cpu(), aligned)


def test_memory():
    net, x, _ = make("planar", 9)
    wanted = empirical_ntk(net, x)
    close(empirical_ntk(net.cuda(), x.cuda(), memory=2**16).cpu(), wanted)
