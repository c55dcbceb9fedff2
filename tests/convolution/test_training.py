"""The networks learn: Fashion-MNIST, shapes to be cut out, and two tones to be continued."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from vademecum.convolution import LeNet5, UNet, WaveNet
from vademecum.data import DataNotFoundError, load

pytestmark = pytest.mark.slow


def test_lenet5_reaches_89_percent_of_fashion_mnist_in_5_epochs():
    try:
        images = load("fashion_mnist")
        unseen = load("fashion_mnist", split="test")
    except DataNotFoundError as error:
        pytest.skip(str(error))
    x, y = pictures(images), images.y.long()
    net = LeNet5(size=28, padding=2)
    adam = torch.optim.Adam(net.parameters(), lr=2e-3, fused=True)
    steps = 5 * (len(x) // 100)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, 8e-3, steps)
    for _ in range(5):
        for batch in torch.randperm(len(x)).split(100):
            adam.zero_grad()
            cross_entropy(net(x[batch]), y[batch]).backward()
            adam.step()
            schedule.step()
    with torch.no_grad():
        right = net.eval()(pictures(unseen)).argmax(1) == unseen.y
    assert right.double().mean() >= 0.89


def pictures(images) -> Tensor:
    x = images.x.float().view(-1, 1, 28, 28)
    return (x - x.mean()) / x.std()


def shapes(n: int, side: int = 64) -> tuple[Tensor, Tensor]:
    """Bright discs and rectangles in noise, and where they are."""
    grid = torch.stack(torch.meshgrid(*[torch.arange(side)] * 2, indexing="ij"))
    centres = torch.randint(12, side - 12, (n, 2, 2, 1, 1))
    radii = torch.randint(5, 12, (n, 2, 1, 1))
    off = grid - centres
    disc = off[:, 0].square().sum(1) <= radii[:, 0].square()
    box = off[:, 1].abs().amax(1) <= radii[:, 1]
    mask = (disc | box).float()[:, None]
    return mask + 0.4 * torch.randn(n, 1, side, side), mask


def test_a_thin_unet_cuts_out_shapes():
    net = UNet(width=16, depth=3)
    adam = torch.optim.Adam(net.parameters(), lr=2e-3, fused=True)
    for _ in range(150):
        x, mask = shapes(8)
        adam.zero_grad()
        binary_cross_entropy_with_logits(net(x), mask).backward()
        adam.step()
    x, mask = shapes(32)
    with torch.no_grad():
        found = net(x) > 0
    both, either = (found & mask.bool()).sum(), (found | mask.bool()).sum()
    assert both / either > 0.95


def test_wavenet_continues_two_tones():
    """The strongest two frequencies of what it continues are those that it has heard."""
    rate, tones, classes = 400, (31.0, 73.0), 64
    t = torch.arange(4 * rate) / rate
    wave = torch.stack([torch.sin(2 * math.pi * f * t) for f in tones]).mean(0)
    samples = ((wave + 1) / 2 * (classes - 1)).round().long()[None]
    net = WaveNet(classes, width=24, skip=48, blocks=1, depth=6)
    adam = torch.optim.Adam(net.parameters(), lr=3e-3, fused=True)
    for _ in range(250):
        begin = torch.randint(samples.shape[1] - 300, (4,))
        x = torch.stack([samples[0, b : b + 300] for b in begin])
        adam.zero_grad()
        cross_entropy(net(x[:, :-1])[:, :, net.field :], x[:, net.field + 1 :]).backward()
        adam.step()
    n = 2 * rate
    heard = net.generate(n, start=samples[:, :200], temperature=0)[0].double()
    assert frequencies(heard, rate) == pytest.approx(tones, rel=0.01)


def frequencies(signal: Tensor, rate: int) -> list[float]:
    """The two strongest frequencies, by the vertex of a parabola through each peak."""
    window = torch.hann_window(len(signal), dtype=torch.float64)
    padded = nn.functional.pad((signal - signal.mean()) * window, (0, 7 * len(signal)))
    power = torch.fft.rfft(padded).abs()
    peaks = []
    for _ in range(2):
        peak = int(power.argmax())
        peaks.append(peak * rate / len(padded))
        power[max(0, peak - 40) : peak + 40] = 0
    return sorted(peaks)
