"""WaveNet: causality, its field, and samples step by step against recomputing."""

import math
import re

import pytest
import torch
from torch import nn

from vademecum.convolution import WaveNet
from vademecum.testing import check_part

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def small(condition=0, **sizes):
    torch.manual_seed(3)
    sizes = {"width": 5, "skip": 7, "blocks": 2, "depth": 3, **sizes}
    return WaveNet(9, condition=condition, **sizes).double()


def recomputed(net, start, n, uniform, condition=None, temperature=1.0):
    """Samples by a whole forward pass for each."""
    x = start
    with torch.no_grad():
        for u in uniform.double():
            logits = net(x, condition)[:, :, -1]
            p = (logits / temperature).softmax(1).cumsum(1) if temperature else None
            if p is None:
                drawn = logits.argmax(1)
            else:
                drawn = (p <= (u * p[:, -1])[:, None]).sum(1).clamp(max=p.shape[1] - 1)
            x = torch.cat([x, drawn[:, None]], 1)
    return x[:, -n:]


def test_wave_net_keeps_the_laws():
    check_part(WaveNet(9, width=4, skip=5, blocks=2, depth=2), torch.randint(9, (3, 12)))
    net = WaveNet(9, width=4, skip=5, blocks=2, depth=2, condition=3)
    check_part(net, (torch.randint(9, (3, 12)), torch.randn(3, 3)),
               skip={"dtype": "the condition has the dtype of the network"})  # fmt: skip


def test_an_output_knows_its_field_and_no_more():
    net = small()
    assert net.field == 15
    x = torch.randint(9, (1, 40))
    with torch.no_grad():
        before = net(x)
    for s in range(40):
        other = x.clone()
        other[0, s] = (other[0, s] + 1) % 9
        with torch.no_grad():
            moved = (net(other) - before)[0].abs().amax(0) > 0
        touched = moved.nonzero().flatten()
        assert touched.min() == s, "the first output that moves is that of the same time"
        assert touched.max() == min(39, s + net.field - 1)


@pytest.mark.parametrize("length", [1, 2, 7, 15, 16, 40])
@pytest.mark.parametrize("condition", [0, 2])
@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
def test_generated_samples_are_those_of_the_whole_network(length, condition, temperature):
    net = small(condition)
    start = torch.randint(9, (3, length))
    h = torch.randn(3, condition, dtype=torch.float64) if condition else None
    uniform = torch.rand(30, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    source = torch.Generator().manual_seed(5)
    found = net.generate(30, start=start, condition=h, temperature=temperature, generator=source)
    assert found.shape == (3, 30)
    assert torch.equal(found, recomputed(net, start, 30, uniform, h, temperature))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_samples_follow_the_network_s_law(dtype):
    """Of a network without layers that matter the law of the next sample is known."""
    net = small(blocks=1, depth=1)
    for p in net.parameters():
        nn.init.zeros_(p)
    p = torch.tensor([0.4, 0.3, 0.1, 0.05, 0.05, 0.04, 0.03, 0.02, 0.01], dtype=torch.float64)
    net.logits.bias = nn.Parameter(p.log())
    p = net.to(dtype).state_dict()["logits.bias"].double().softmax(0)
    n = 5_000
    drawn = net.generate(n, generator=torch.Generator().manual_seed(0))[0]
    counts = torch.bincount(drawn, minlength=9).double()
    chi_squared = ((counts - n * p).square() / (n * p)).sum()
    assert chi_squared < 8 + 6 * math.sqrt(16), "beyond six standard deviations of chi-squared(8)"


def test_the_middle_class_is_where_samples_begin():
    net = small()
    begun = net.generate(12, generator=torch.Generator().manual_seed(1))
    start = torch.full((1, 1), 4)
    assert torch.equal(begun, net.generate(12, start=start,
                                           generator=torch.Generator().manual_seed(1)))  # fmt: skip


def test_it_learns_to_continue_a_rhythm():
    torch.manual_seed(0)
    net = WaveNet(4, width=8, skip=16, blocks=1, depth=4)
    rhythm = torch.tensor([0, 1, 2, 3, 3, 2]).repeat(20)[None]
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(120):
        adam.zero_grad()
        nn.functional.cross_entropy(net(rhythm[:, :-1]), rhythm[:, 1:]).backward()
        adam.step()
    found = net.generate(18, start=rhythm[:, :60], temperature=0)
    assert torch.equal(found, rhythm[:, 60:78])


@CUDA
@pytest.mark.gpu
def test_replayed_steps_are_those_of_the_cpu():
    net = small(2)
    start, h = torch.randint(9, (3, 20)), torch.randn(3, 2, dtype=torch.float64)
    wanted = net.generate(50, start=start, condition=h, generator=torch.Generator().manual_seed(1))
    net = net.cuda()
    found = net.generate(50, start=start.cuda(), condition=h.cuda(),
                         generator=torch.Generator().manual_seed(1))  # fmt: skip
    assert torch.equal(found.cpu(), wanted)


X = torch.zeros(2, 5, dtype=torch.long)
MISTAKES = [
    (lambda: WaveNet(1), "num_classes must be >= 2, got 1"),
    (lambda: WaveNet(4, condition=-1), "condition must be >= 0, got -1"),
    (lambda: small()(X.float()), "x must be classes (n, T), got torch.float32 of shape (2, 5)"),
    (lambda: small()(X[:, :0]), "x must be classes (n, T), got torch.int64 of shape (2, 0)"),
    (lambda: small(2)(X), "condition must be 2 numbers, as the network was made for"),
    (lambda: small()(X, torch.zeros(2, 2)), "condition must be None, as the network was made for"),
    (lambda: small(2)(X, torch.zeros(3, 2)), "condition must have the shape (2, 2), got (3, 2)"),
    (lambda: small().generate(0), "n must be >= 1, got 0"),
    (lambda: small().generate(3, temperature=-1.0), "temperature must be >= 0, got -1.0"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
