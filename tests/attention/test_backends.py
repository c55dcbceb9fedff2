"""On a GPU: every backend of torch's fused attention gives the same, also without keys."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from vademecum.attention import MultiHeadAttention, TransformerEncoder
from vademecum.models import Replay

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
BACKENDS = [
    *(SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION),
    *(SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION),
]
pytestmark = [CUDA, pytest.mark.gpu]


def made(dtype, **knobs):
    layer = MultiHeadAttention(64, 4, **knobs).to("cuda", dtype)
    return layer, torch.randn(3, 33, 64, device="cuda").to(dtype)


def agree(found, wanted, dtype):
    tol = {torch.float32: 2e-5, torch.float64: 1e-12}.get(dtype, 0.03)
    assert torch.allclose(found.double().cpu(), wanted.double().cpu(), rtol=0, atol=tol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize("how", ["all", "causal", "lengths", "mask"])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_every_backend_agrees_with_the_cpu(dtype, backend, how, kv_heads):
    layer, x = made(dtype, kv_heads=kv_heads)
    mask = torch.rand(3, 33, 33, device="cuda") < 0.5
    mask[1, 4] = False
    knobs = {
        "all": {}, "causal": {"causal": True}, "mask": {"mask": mask},
        "lengths": {"lengths": torch.tensor([33, 5, 0])},
    }[how]  # fmt: skip
    wide = {name: z.cpu() if torch.is_tensor(z) else z for name, z in knobs.items()}
    oracle = MultiHeadAttention(64, 4, kv_heads=kv_heads).double()
    oracle.load_state_dict(layer.state_dict())
    wanted = oracle(x.cpu().double(), **wide)
    x.requires_grad_()
    with sdpa_kernel([backend, SDPBackend.MATH], set_priority=True):
        found = layer(x, **knobs)
        (grad,) = torch.autograd.grad(found.float().square().sum(), x)
    agree(found, wanted, dtype)
    assert grad.isfinite().all()
    if how == "mask":
        assert not found[1, 4].any()
    if how == "lengths":
        assert not found[2].any()
        assert not grad[2].any()


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_no_keys_need_no_synchronisation():
    layer, x = made(torch.bfloat16)
    mask = torch.rand(3, 33, 33, device="cuda") < 0.5
    lengths = torch.tensor([33, 5, 0], device="cuda")
    assert not layer(x, x[:, :5], causal=True)[:, :28].any()
    try:
        torch.cuda.set_sync_debug_mode("error")
        layer(x, mask=mask).sum().backward()
        layer(x, lengths=lengths, causal=True).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@torch.no_grad()
def test_a_captured_step_is_the_whole_sequence():
    net = TransformerEncoder(64, 4, depth=2, rotary=100.0, kv_heads=2).double().cuda().eval()
    x = torch.randn(3, 20, 64, device="cuda").double()
    cache = net.cache(3, 20, all_slots=True)
    net(x[:, :4], causal=True, cache=cache)
    cache[0].reserve(16)
    now, out = x[:, 4:5].clone(), torch.empty_like(x[:, :1])
    state = [z for c in cache for z in (c.keys, c.values, c.lengths)]
    step = Replay(lambda: out.copy_(net(now, causal=True, cache=cache)), state)
    wanted = net(x, causal=True)
    for t in range(4, 20):
        now.copy_(x[:, t : t + 1])
        step()
        assert torch.allclose(out[:, 0], wanted[:, t], rtol=0, atol=1e-11)
