"""Positions, vision transformers and memory networks on a GPU, against the CPU."""

from typing import Any

import pytest
import torch

from vademecum.attention import MemoryNetwork, ViT, encoding_rotation, rotary, sinusoidal_encoding

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SHAPE: dict[str, Any] = {"width": 24, "depth": 3, "heads": 3}


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("pooling", ["class", "mean"])
def test_vit_on_a_gpu_is_that_of_the_cpu(pooling):
    net = ViT("Ti", 7, size=(48, 32), patch=8, pooling=pooling, **SHAPE).double()
    images = [torch.randn(2, 3, *size, dtype=torch.float64) for size in ((48, 32), (64, 80))]
    wanted = [net(x) for x in images]
    torch.stack(wanted).sum().backward()
    slopes = [p.grad for p in net.parameters()]
    net.zero_grad()
    net.cuda()
    found = [net(x.cuda()) for x in images]
    torch.stack(found).sum().backward()
    torch.testing.assert_close(torch.stack(found).cpu(), torch.stack(wanted))
    for p, slope in zip(net.parameters(), slopes, strict=True):
        assert p.grad is not None
        torch.testing.assert_close(p.grad.cpu(), slope)
    net.resize((64, 80))
    assert net.pos_embed is not None
    assert net.pos_embed.is_cuda
    torch.testing.assert_close(net(images[1].cuda()), found[1])


@CUDA
@pytest.mark.gpu
def test_positions_on_a_gpu_are_those_of_the_cpu():
    for make in (sinusoidal_encoding, encoding_rotation):
        torch.testing.assert_close(make(50, 6, device="cuda").cpu(), make(50, 6))


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
def test_rotary_on_a_gpu_is_that_of_the_cpu(pairing, dtype):
    x, at = torch.randn(2, 3, 5, 9).to(dtype), torch.tensor([0, 1, 70, 9000, 1_000_000])
    for part in (slice(0, 8), slice(1, 9)):  # the second is no view of complex numbers
        found = rotary(x.cuda()[..., part], at.cuda(), pairing=pairing)
        torch.testing.assert_close(found.cpu(), rotary(x[..., part], at, pairing=pairing))


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("recall", ["softmax", "hard"])
def test_memories_on_a_gpu_are_those_of_the_cpu(recall):
    net = MemoryNetwork(9, hops=2, recall=recall).double()
    facts, question = torch.randint(9, (4, 6, 2)), torch.randint(9, (4, 1))
    mask = torch.rand(4, 6) < 0.7
    wanted = net(facts, question, mask=mask)
    net.cuda()
    found = net(facts.cuda(), question.cuda(), mask=mask.cuda())
    torch.testing.assert_close(found.cpu(), wanted)
    with pytest.raises(ValueError, match="facts must be from 0 to 8, got 9"):
        net(facts.cuda() * 0 + 9, question.cuda())
