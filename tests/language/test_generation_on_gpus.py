"""Generation on CUDA devices: captured steps give what the CPU gives."""

import gc
import weakref
from typing import Any

import pytest
import torch

from tests.language.test_generation import WAYS, model, prompts
from vademecum.language import generate, stream_tokens

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
pytestmark = [CUDA, pytest.mark.gpu]


@pytest.mark.parametrize("way", ["greedy", "stopped", "one choice"])
def test_captured_steps_give_the_tokens_of_the_cpu(way):
    net, knobs = model(context=64), WAYS[way]
    on_gpu = model(context=64).cuda()
    on_gpu.load_state_dict(net.state_dict())
    for n, new in ((4, 20), (4, 12), (2, 20), (4, 20)):  # the second fits the graph of the first
        rows = prompts()[:n]
        found = generate(on_gpu, rows, max_new_tokens=new, **knobs)
        wanted = generate(net, rows, max_new_tokens=new, **knobs)
        longest = wanted.tokens.shape[1]
        assert found.tokens[:, :longest].cpu().equal(wanted.tokens)
        torch.testing.assert_close(found.log_probs.cpu(), wanted.log_probs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])  # without and with kernels
def test_a_graph_sees_new_weights_and_does_not_keep_a_model_alive(dtype):
    net = model(context=64).cuda().to(dtype)
    rows = [row.cuda() for row in prompts()]
    generate(net, rows, max_new_tokens=10, temperature=0)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(-0.7)
    found = generate(net, rows, max_new_tokens=10, temperature=0)
    wanted = generate(net, rows, max_new_tokens=10, temperature=0, cache=False)
    assert found.tokens.equal(wanted.tokens)
    ghost = weakref.ref(net)
    del net
    gc.collect()
    assert ghost() is None


def test_drawn_tokens_are_those_of_the_cpu_and_streams_do_not_disturb_each_other():
    net = model(context=64)
    on_gpu = model(context=64).cuda()
    on_gpu.load_state_dict(net.state_dict())
    rows = prompts()
    knobs: Any = {"max_new_tokens": 20, "temperature": 0.8, "top_k": 6, "top_p": 0.9}
    wanted = generate(net, rows, generator=torch.Generator().manual_seed(0), **knobs).tokens
    streams = [
        stream_tokens(on_gpu, rows, generator=torch.Generator().manual_seed(0), **knobs)
        for _ in range(2)
    ]
    steps = list(zip(*streams, strict=True))
    for i in range(2):
        assert torch.stack([step[i] for step in steps], 1).cpu().equal(wanted)


def test_half_precision_generates():
    net = model(context=64).cuda().bfloat16()
    found = generate(net, prompts(), max_new_tokens=20)
    assert bool(found.log_probs.isfinite().all())
