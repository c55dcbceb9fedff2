"""PixelCNN: what each output depends on, sums over all images, and samples drawn the slow way."""

import itertools

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor, nn

from vademecum.generative import MaskedConv2d, PixelCNN
from vademecum.models import named_modules

NETS = [
    ((1, 2, 3), 2, {}),
    ((1, 2, 2), 3, {"stacks": 1}),
    ((2, 1, 3), 2, {"stacks": 2, "depth": 0}),
    ((3, 1, 2), 2, {"stacks": 1, "first_size": 5}),
    ((2, 2, 1), 3, {"stacks": 2, "kernel_size": 5, "first_size": 3}),
]


def network(shape, levels, *, seed: int = 0, **knobs) -> PixelCNN:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        sizes = {"width": 6 * shape[0], "head": 4 * shape[0], "depth": 2} | knobs
        net = PixelCNN(shape, levels, **sizes).double()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(2)
    return net


def all_images(shape, levels) -> Tensor:
    size = shape[0] * shape[1] * shape[2]
    values = list(itertools.product(range(levels), repeat=size))
    return torch.tensor(values).view(-1, *shape)


def order(shape) -> Tensor:
    """When each colour of each pixel comes: raster order, the colours of a pixel in turn."""
    c, h, w = shape
    return torch.arange(h * w * c).view(h, w, c).permute(2, 0, 1)


@pytest.mark.parametrize(("shape", "levels", "knobs"), NETS)
def test_all_images_have_a_probability_of_one(shape, levels, knobs):
    net = network(shape, levels, **knobs)
    images = all_images(shape, levels)
    total = net.log_prob(images).detach().exp().sum()
    assert float(total) == pytest.approx(1, abs=1e-12)
    logits = net(images)
    chosen = logits.log_softmax(1).gather(1, images[:, None])[:, 0].flatten(1).sum(1)
    torch.testing.assert_close(net.log_prob(images), chosen)


@pytest.mark.parametrize("stacks", [1, 2])
@pytest.mark.parametrize("colours", [1, 3])
def test_an_output_depends_on_what_comes_before_it(stacks, colours):
    """Change one colour of one pixel at a time: outputs that move come later, and some do."""
    shape = (colours, 5, 4)
    net = network(shape, 4, stacks=stacks, depth=3)
    x = torch.randint(4, (6, *shape), generator=torch.Generator().manual_seed(1))
    before, when = net(x), order(shape)
    for place in itertools.product(*map(range, shape)):
        changed = x.clone()
        changed[(..., *place)] = (changed[(..., *place)] + 1) % 4
        moved = (net(changed) - before).abs().amax((0, 1)) > 0
        assert not moved[when <= when[place]].any()
        if place != (colours - 1, 4, 3):
            after = [p for p in itertools.product(*map(range, shape)) if when[p] == when[place] + 1]
            assert moved[after[0]]  # the very next one knows it


def unseen(net: PixelCNN, i: int, j: int) -> set[tuple[int, int]]:
    """Earlier pixels that the outputs at (i, j) do not depend on, by autograd."""
    z = torch.randn(1, *net.shape, dtype=torch.float64, requires_grad=True)
    net.relaxed(z)[0, :, :, i, j].sum().backward()
    assert z.grad is not None
    seen = z.grad[0].abs().sum(0) > 0
    w = net.shape[2]
    return {divmod(p, w) for p in range(i * w + j) if not seen[divmod(p, w)]}


def test_the_blind_spot_and_its_cure():
    shape = (1, 9, 9)
    one = network(shape, 2, stacks=1, depth=9, first_size=3)
    spot = {(i, j) for i in range(8) for j in range(9) if j - 4 > 8 - i}
    assert unseen(one, 8, 4) == spot
    assert len(spot) == 6
    two = network(shape, 2, stacks=2, depth=9, first_size=3)
    assert unseen(two, 8, 4) == set()
    assert unseen(two, 5, 8) == set()


def slowly(net: PixelCNN, uniform: Tensor, context: Tensor | None) -> Tensor:
    """A whole pass for each colour of each pixel."""
    c, h, w = net.shape
    x = torch.zeros(uniform.shape[-1], c, h, w, dtype=torch.long)
    for i, j, k in itertools.product(range(h), range(w), range(c)):
        law = net(x, context)[:, :, k, i, j].softmax(1).cumsum(1)
        x[:, k, i, j] = (law < uniform[i, j, k][:, None]).sum(1)
    return x


@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize(
    ("shape", "levels", "knobs"),
    [*NETS, ((3, 4, 5), 5, {"stacks": 2}), ((1, 6, 4), 3, {"stacks": 1, "kernel_size": 5})],
)
def test_kept_numbers_give_the_samples_of_whole_passes(shape, levels, knobs, context):
    net = network(shape, levels, context=context, **knobs)
    given = torch.randn(5, context).double() if context else None
    found = net.sample(5, given, generator=torch.Generator().manual_seed(2))
    c, h, w = shape
    g = torch.Generator().manual_seed(2)
    uniform = torch.rand(h, w, c, 5, dtype=torch.float64, generator=g)
    assert found.equal(slowly(net, uniform, given))
    if given is not None:
        assert not net(found, given).equal(net(found, given + 1))


def test_samples_follow_the_law():
    net, n = network((1, 2, 2), 2), 4000
    drawn = net.sample(n, generator=torch.Generator().manual_seed(3))
    images = all_images((1, 2, 2), 2)
    counts = (drawn[:, None] == images).flatten(2).all(2).sum(0)
    assert chisquare(counts, n * net.log_prob(images).exp().detach()).pvalue > 1e-3


def test_it_learns_a_law_with_colours():
    """Images whose second colour copies the first, and whose rows alternate: one bit in all."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = PixelCNN((2, 2, 2), 2, width=12, depth=1, head=8, first_size=3)
        first = torch.randint(2, (256, 1, 1, 1))
        x = (first + torch.tensor([0, 1])[:, None]).expand(-1, 2, 2, 2) % 2
        optimizer = torch.optim.Adam(net.parameters(), 0.02)
        loss = torch.tensor(torch.nan)
        for _ in range(60):
            optimizer.zero_grad()
            loss = -net.log_prob(x).mean()
            loss.backward()
            optimizer.step()
        assert float(loss.detach()) < 0.8  # log 2 = 0.693
        drawn = net.sample(50)
    assert (drawn[:, 0] == drawn[:, 1]).double().mean() > 0.95
    assert (drawn[:, :, 0] != drawn[:, :, 1]).double().mean() > 0.95


def test_masks_by_hand():
    layer = MaskedConv2d(3, 6, 3, kind="A", colours=3)
    assert layer.mask.shape == (6, 3, 2, 3)
    assert layer.mask[:, :, 0].all()
    assert layer.mask[:, :, 1, 0].all()
    assert not layer.mask[:, :, 1, 2].any()
    own = torch.tensor([[0, 0, 0], [1, 0, 0], [1, 1, 0]]).bool().repeat(2, 1)
    assert layer.mask[:, :, 1, 1].equal(own)
    later = MaskedConv2d(3, 6, 3, kind="B", colours=3)
    assert later.mask[:, :, 1, 1].equal(own | torch.eye(3).bool().repeat(2, 1))
    row = MaskedConv2d(1, 1, 5, kind="B", rows=1)
    assert row.mask.flatten().tolist() == [True, True, True, False, False]


def test_a_masked_layer_is_a_masked_convolution():
    layer = MaskedConv2d(2, 4, 5, kind="B", colours=2)
    x = torch.randn(3, 2, 6, 7)
    full = nn.Conv2d(2, 4, 5, padding=2)
    with torch.no_grad():
        full.weight.zero_()
        full.weight[:, :, :3] = layer.weight * layer.mask
        assert full.bias is not None
        assert layer.bias is not None
        full.bias.copy_(layer.bias)
    torch.testing.assert_close(layer(x), full(x))
    assert "colours=2" in repr(layer)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
@pytest.mark.parametrize("levels", [2, 256, 300])
def test_whole_numbers_of_every_kind(dtype, levels):
    """Bytes are how images come, and 256 is no byte."""
    net = network((1, 2, 2), levels)
    x = torch.tensor([[0, 1], [1, 0]]).expand(3, 1, 2, 2)
    assert net.log_prob(x.to(dtype)).equal(net.log_prob(x))
    if dtype == torch.uint8:
        with pytest.raises(ValueError, match="x must be from 0 to 199, got values from 0 to 255"):
            network((1, 2, 2), 200).log_prob(255 * x.to(dtype))


def test_values_reach_the_network_from_minus_one_to_one():
    net = network((1, 1, 1), 5)
    assert net.scaled(torch.arange(5)).tolist() == [-1, -0.5, 0, 0.5, 1]


def test_weights_load_without_masks():
    net, other = network((1, 3, 3), 2), network((1, 3, 3), 2, seed=1)
    assert not any("mask" in key for key in net.state_dict())
    other.load_state_dict(net.state_dict())
    x = torch.randint(2, (4, 1, 3, 3))
    assert other.log_prob(x).equal(net.log_prob(x))
    assert sum(isinstance(m, MaskedConv2d) for _, m in named_modules(net)) == 7


NET = PixelCNN((1, 2, 2), 3, width=2, depth=1, head=2)
LED = PixelCNN((1, 2, 2), 3, width=2, depth=1, head=2, context=2)
X = torch.zeros(4, 1, 2, 2, dtype=torch.long)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NET.log_prob(X.float()), r"x must be whole numbers \(n, 1, 2, 2\), got torch.flo"),
        (lambda: NET.log_prob(X[:, 0]), "x must be whole numbers"),
        (lambda: NET.log_prob(X[:0]), "x must be whole numbers"),
        (lambda: NET.log_prob(X + 3), "x must be from 0 to 2, got values from 3 to 3"),
        (lambda: NET.log_prob(X - 1), "x must be from 0 to 2, got values from -1 to -1"),
        (lambda: NET.log_prob(X, torch.zeros(4, 2)), "context must be None, as the network"),
        (lambda: LED.log_prob(X), "context must be 2 numbers for each image"),
        (lambda: LED.log_prob(X, torch.zeros(3, 2)), r"context must have the shape \(4, 2\), got"),
        (lambda: LED.sample(4, torch.zeros(4, 3)), r"context must have the shape \(4, 2\), got"),
        (lambda: LED.sample(4, torch.zeros(4, 2) / 0), "context must be finite"),
        (lambda: NET.sample(0), "n must be >= 1, got 0"),
        (lambda: PixelCNN((2, 2)), "shape must be colours, height and width"),
        (lambda: PixelCNN((1, 0, 2)), "shape must be >= 1, got 0"),
        (lambda: PixelCNN((3, 2, 2), width=4), "out_channels must be divisible by colours = 3"),
        (lambda: PixelCNN((1, 2, 2), 1), "levels must be >= 2, got 1"),
        (lambda: PixelCNN((1, 2, 2), kernel_size=4), "kernel_size must be odd, got 4"),
        (lambda: PixelCNN((1, 2, 2), first_size=1), "first_size must be >= 3, got 1"),
        (lambda: PixelCNN((1, 2, 2), depth=-1), "depth must be >= 0, got -1"),
        (lambda: MaskedConv2d(2, 3, 3, kind="A", colours=2), "out_channels must be divisible"),
        (lambda: MaskedConv2d(1, 1, 3, kind="A")(torch.ones(1, 2, 3, 3)), "x must have the shape"),
    ],
)
def test_bad_input_is_named(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.parametrize("stacks", [1, 2])
def test_gpus(stacks):
    net = network((2, 4, 5), 3, stacks=stacks, context=2)
    given = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    here = net.sample(6, given, generator=torch.Generator().manual_seed(1))
    log_prob = net.log_prob(here, given)
    net.cuda()
    there = net.sample(6, given.cuda(), generator=torch.Generator().manual_seed(1))
    assert there.cpu().equal(here)
    torch.testing.assert_close(net.log_prob(there, given.cuda()).cpu(), log_prob)
    assert net.sample(2, given[:2].cuda()).is_cuda
    with pytest.raises(ValueError, match="x must be from 0 to 2, got values from"):
        net(there + 3, given.cuda())
    tiny = network((1, 1, 1), 2, stacks=stacks).cuda()
    assert 0 < float(tiny.sample(500).double().mean()) < 1
