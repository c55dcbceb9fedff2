"""Networks that are told times and contexts, against their formulas written out."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import math

import pytest
import torch
from torch import nn

from vademecum.generative import ConditionalMLP, ConditionalUNet

F64 = torch.float64


def silu(x):
    return x / (1 + torch.exp(-x))


def embedded(told, t, context):
    """Sines and cosines of 1000 t / horizon, two dense layers, and a row of the table."""
    angle = 1000 * t.to(F64) / told.horizon
    omega = 1e-4 ** (torch.arange(told.waves, dtype=F64) / (told.waves - 1))
    waves = torch.cat([torch.sin(angle[:, None] * omega), torch.cos(angle[:, None] * omega)], 1)
    first, _, second = told.time
    found = silu(waves @ first.weight.T + first.bias) @ second.weight.T + second.bias
    return found + told.context.weight[context]


def modulated(layer, h, e):
    scale, shift = (silu(e) @ layer.weight.T + layer.bias).chunk(2, 1)
    wide = scale.shape + (1,) * (h.ndim - 2)
    return (1 + scale.view(wide)) * h + shift.view(wide)


def standardised(module, x, groups):
    """Zero mean and unit variance over the features of a group, then a gain and an offset."""
    rows = x.reshape(len(x), groups, -1)
    mean, variance = rows.mean(2, keepdim=True), rows.var(2, keepdim=True, correction=0)
    wide = (1, -1) + (1,) * (x.ndim - 2)
    found = ((rows - mean) / (variance + module.eps).sqrt()).reshape(x.shape)
    return found * module.weight.view(wide) + module.bias.view(wide)


def block(part, x, e):
    h = part.conv(silu(standardised(part.norm, x, 8)))
    h = part.conv2(silu(modulated(part.told, standardised(part.norm2, h, 8), e)))
    if isinstance(part.skip, nn.Conv2d):
        kernel = part.skip.weight[:, :, 0, 0]
        x = torch.einsum("oc,nchw->nohw", kernel, x) + part.skip.bias.view(1, -1, 1, 1)
    return x + h


def attention(part, x, heads):
    n, maps, height, width = x.shape
    places = standardised(part.norm, x, 8).flatten(2)
    all_ = torch.einsum("oc,ncp->nop", part.into.weight[:, :, 0, 0], places)
    all_ = all_ + part.into.bias[:, None]
    q, k, v = (all_[:, i * maps : (i + 1) * maps] for i in range(3))
    seen, each = torch.zeros_like(v), maps // heads
    for i in range(heads):
        own = slice(i * each, (i + 1) * each)
        for row in range(n):
            weights = (q[row, own].T @ k[row, own] / math.sqrt(each)).softmax(1)
            seen[row, own] = v[row, own] @ weights.T
    back = torch.einsum("oc,ncp->nop", part.back.weight[:, :, 0, 0], seen)
    return x + (back + part.back.bias[:, None]).view(n, maps, height, width)


def by_hand(net, x, t, context, heads):
    """Two levels with one block each: down, the middle, and up with what was left."""
    e = embedded(net.told, t, context)
    first = net.first(x)
    one = block(net.down[0], first, e)
    half = net.down[1](one)
    two = block(net.down[2], half, e)
    h = block(net.middle[1], attention(net.attention, block(net.middle[0], two, e), heads), e)
    h = block(net.up[0], torch.cat([h, two], 1), e)
    h = block(net.up[1], torch.cat([h, half], 1), e)
    h = net.up[2].conv(h.repeat_interleave(2, 2).repeat_interleave(2, 3))
    h = block(net.up[3], torch.cat([h, one], 1), e)
    h = block(net.up[4], torch.cat([h, first], 1), e)
    return net.last(silu(standardised(net.norm, h, 8)))


def stirred(net):
    """Parameters that are all at work: gains that are not 1, a last layer that is not 0."""
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return net.double().eval()


@pytest.mark.parametrize(("wide", "heads"), [(8, 2), (3, 1)])
def test_conditional_unet_is_its_formula(wide, heads):
    """64 maps at the coarse level have two heads of 32; 24 maps, not divisible by 32, have one."""
    net = stirred(ConditionalUNet(2, width=8, multipliers=(1, wide), blocks=1, classes=3))
    x, t, context = torch.randn(3, 2, 8, 4, dtype=F64), torch.tensor([1, 40, 900]), torch.arange(3)
    wanted = by_hand(net, x, t, context, heads)
    # times and waves are in float32, whose angles are up to 900
    torch.testing.assert_close(net(x, t, context), wanted, rtol=1e-3, atol=1e-3)
    other = by_hand(net, x, t, context.flip(0), heads)
    assert bool((wanted - other).abs().max() > 0.02)
    plain = by_hand(net, x, torch.zeros(3), context, heads)
    torch.testing.assert_close(net(x, torch.zeros(3), context), plain, rtol=1e-9, atol=1e-9)


def test_conditional_mlp_is_its_formula():
    net = stirred(ConditionalMLP(3, hidden=(6, 6, 4), classes=3, embedding=10, horizon=1.0))
    x, context = torch.randn(3, 3, dtype=F64), torch.arange(3)
    e, h = embedded(net.told, torch.zeros(3), context), net.first(x)
    for layer in net.layers:
        normed = standardised(layer.norm, h, 1)
        new = silu(modulated(layer.told, normed @ layer.dense.weight.T + layer.dense.bias, e))
        h = h + new if new.shape == h.shape else new
    torch.testing.assert_close(net(x, torch.zeros(3), context), net.last(h), rtol=1e-9, atol=1e-9)


def test_dropout_is_at_work_in_training_alone():
    net = ConditionalUNet(1, width=8, blocks=1, multipliers=(1,), dropout=0.5)
    nn.init.normal_(net.last.weight)
    x, t = torch.randn(2, 1, 4, 4), torch.tensor([1, 2])
    assert not net(x, t).equal(net(x, t))
    net.eval()
    torch.testing.assert_close(net(x, t), net(x, t), rtol=0, atol=0)


def _norms_under_autocast(device):
    torch.manual_seed(0)
    net = ConditionalUNet(1, width=32, blocks=1, multipliers=(1, 2), classes=4).to(device)
    nn.init.normal_(net.last.weight, std=0.1)
    seen = []
    for part in net.modules():
        if isinstance(part, nn.GroupNorm):
            part.register_forward_hook(lambda m, x, y: seen.append((x[0].dtype, y.dtype)))
    x, t = torch.randn(4, 1, 8, 8, device=device), torch.tensor([1, 9, 100, 999], device=device)
    context = torch.arange(4, device=device)
    wanted = net(x, t, context)
    assert set(seen) == {(torch.float32, torch.float32)}
    seen.clear()
    with torch.autocast(device, torch.bfloat16):
        found = net(x, t, context)
        found.float().square().mean().backward()
    assert set(seen) == {(torch.bfloat16, torch.bfloat16)}
    assert bool((found - wanted).norm() < 0.05 * wanted.norm())
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in net.parameters())


def test_reduced_precision_reaches_the_norms():
    _norms_under_autocast("cpu")


@pytest.mark.gpu
def test_reduced_precision_reaches_the_norms_on_a_device():
    _norms_under_autocast("cuda")
