"""Steps of GPT without calls of modules, against passes over all tokens and against hooks."""

import contextlib
import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vademecum.attention import KeyValueCache
from vademecum.language import GPT, generate
from vademecum.language.networks import _steps_on_cuda
from vademecum.language.networks._gpt_blocks import Map
from vademecum.language.networks._steps_on_cuda import step_on_cuda
from vademecum.language.networks._token_steps import token_step

V = 11


def _model(dtype: torch.dtype = torch.float64) -> GPT:
    torch.manual_seed(0)
    net = GPT(V=V, d=12, layers=3, heads=2, context=9)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return net.to(dtype).eval()


@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("lengths", [[4, 4], [2, 4]])
def test_each_step_gives_what_a_pass_over_all_tokens_gives(
    dtype: torch.dtype, tol: float, lengths: list[int]
) -> None:
    net, tokens = _model(dtype), torch.randint(V, (2, 9))
    with torch.inference_mode():
        caches = net.make_cache(2, 9)
        prompt = torch.tensor(lengths) if len(set(lengths)) > 1 else None
        net(tokens[:, :4], cache=caches, lengths=prompt)
        step = token_step(net, caches)
        assert step is not None
        rows: list[Tensor] = [
            torch.cat([row[:n], row[4:]]) for row, n in zip(tokens, lengths, strict=True)
        ]
        whole = [net(row[None])[0] for row in rows]
        for t in range(5):
            found = step(tokens[:, 4 + t])
            true = torch.stack([w[n + t] for w, n in zip(whole, lengths, strict=True)])
            torch.testing.assert_close(found, true, rtol=0, atol=tol)
            assert caches[2].lengths.tolist() == [n + t + 1 for n in lengths]


def test_a_step_beyond_the_cache_is_refused() -> None:
    net = _model()
    with torch.inference_mode():
        caches = net.make_cache(1, 2)
        net(torch.zeros(1, 2, dtype=torch.long), cache=caches)
        step = token_step(net, caches)
        assert step is not None
        with pytest.raises(ValueError, match="the cache is full"):
            step(torch.zeros(1, dtype=torch.long))
        again = token_step(net, net.make_cache(1, 2))
        assert again is not None
        with pytest.raises(ValueError, match="tokens must be between 0 and 10, got 11"):
            again(torch.tensor([V]))


def test_hooks_are_called_at_every_step() -> None:
    net, calls = _model(), []
    inner = next(m for m in net.modules() if isinstance(m, Map))
    handle = inner.register_forward_hook(lambda *_: calls.append(1))
    found = generate(net, [[0]], max_new_tokens=5, temperature=0)
    assert len(calls) == 5
    handle.remove()
    assert generate(net, [[0]], max_new_tokens=5, temperature=0).tokens.equal(found.tokens)
    assert len(calls) == 5


class _Doubled(Map):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


@pytest.mark.parametrize("how", ["class", "instance", "parametrised"])
def test_a_module_that_does_something_else_is_called(how: str) -> None:
    net = _model()
    map = next(m for m in net.modules() if isinstance(m, Map))
    if how == "class":
        map.__class__ = _Doubled
    elif how == "instance":
        map.forward = lambda x: 2 * Map.forward(map, x)
    else:
        nn.utils.parametrize.register_parametrization(map, "weight", nn.Softmax(0))
    cached = generate(net, [[0, 3]], max_new_tokens=6, temperature=0)
    afresh = generate(net, [[0, 3]], max_new_tokens=6, temperature=0, cache=False)
    assert cached.tokens.equal(afresh.tokens)
    torch.testing.assert_close(cached.log_probs, afresh.log_probs)
    assert token_step(net, net.make_cache(1, 2)) is None


def test_a_head_with_a_bias_is_called() -> None:
    net = _model()
    net.lm_head = nn.Linear(12, V).double()
    with torch.no_grad():
        net.lm_head.bias.copy_(torch.arange(V).double())
    cached = generate(net, [[0, 3]], max_new_tokens=6, temperature=0)
    afresh = generate(net, [[0, 3]], max_new_tokens=6, temperature=0, cache=False)
    torch.testing.assert_close(cached.log_probs, afresh.log_probs)


def _looked_back(qkv: Tensor, cache: KeyValueCache, heads: int) -> Tensor:
    """What the kernel does, which counts no token."""
    n, d = len(qkv), qkv.shape[1] // 3
    q, k, v = qkv.view(n, 3, heads, 1, d // heads).unbind(1)
    seen = torch.arange(cache.capacity) <= cache.lengths[:, None]
    keys, values = cache.append(k, v)
    cache.lengths.sub_(1)
    attended = nn.functional.scaled_dot_product_attention(q, keys, values, seen[:, None, None])
    return attended.reshape(n, d)


def test_rows_that_become_more_than_kernels_are_for_go_to_torch(monkeypatch) -> None:
    """As beams do; all but attention is torch's then, and runs on a CPU as well."""
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(_steps_on_cuda, "_looked_back", _looked_back)
    net, tokens = _model(), torch.randint(V, (6, 9))
    with torch.inference_mode():
        caches, like = (net.make_cache(1, 9, all_slots=True) for _ in range(2))
        step = step_on_cuda(net, caches)
        for cache in (caches, like):
            net(tokens[:1, :4], cache=cache)
            for each in cache:
                each.reorder(torch.zeros(6, dtype=torch.long))
        for t in range(4, 9):
            true = net(tokens[:, t : t + 1], cache=like)[:, 0]
            torch.testing.assert_close(step(tokens[:, t]), true, rtol=0, atol=1e-12)
            assert caches[2].lengths.equal(like[2].lengths)


@pytest.mark.parametrize("lacks", ["", "bias", "weight", "dtype", "kind"])
def test_kernels_are_for_parameters_that_they_can_read(lacks: str) -> None:
    net = _model(torch.float32)
    body: Any = net.transformer
    norm, map = body.ln_f, body.h[1].mlp.c_proj
    if lacks == "bias":
        map.bias = None
    elif lacks == "weight":
        norm.weight = None
    elif lacks == "dtype":
        norm.half()
    elif lacks == "kind":
        map.bias = _Odd(torch.zeros(12))
    assert _steps_on_cuda._plain(net) == (not lacks)


class _Odd(nn.Parameter):
    """A tensor of another kind."""


def test_what_autocast_or_other_models_do_is_left_to_them() -> None:
    net = _model(torch.float32)
    caches = net.make_cache(1, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert token_step(net, caches) is None
    assert token_step(net, caches) is not None
    assert token_step(nn.Embedding(3, 3), caches) is None


@pytest.mark.gpu
@pytest.mark.parametrize(("d", "heads"), [(12, 2), (40, 5), (768, 12), (1100, 5)])
@pytest.mark.parametrize("lengths", [[4], [2, 4], [4, 1, 3], [1, 2, 3, 4, 4]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_kernels_are_as_close_to_exact_numbers_as_the_model_is(
    d: int, heads: int, lengths: list[int], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    net = GPT(V=50, d=d, layers=2, heads=heads, context=300).cuda().to(dtype).eval()
    n, prompt = len(lengths), torch.tensor(lengths, device="cuda")
    tokens = torch.randint(50, (n, 300), device="cuda")
    models = net, net, copy.deepcopy(net).double()
    with torch.inference_mode():
        caches = [model.make_cache(n, 290, all_slots=True) for model in models]
        for model, cache in zip(models, caches, strict=True):
            model(tokens[:, :4], cache=cache, lengths=prompt)
        step, errors = token_step(net, caches[0]), torch.zeros(2, dtype=torch.float64)
        assert step is not None
        for t in range(4, 280):
            found = step(tokens[:, t])
            plain, exact = (
                model(tokens[:, t : t + 1], cache=cache)[:, 0]
                for model, cache in zip(models[1:], caches[1:], strict=True)
            )
            off = [float((z.double() - exact).abs().max()) for z in (found, plain)]
            errors = torch.maximum(errors, errors.new_tensor(off))
            assert caches[0][1].lengths.equal(caches[2][1].lengths)
    assert 0 < errors[0] < 10 * errors[1]  # sums have another order


@pytest.mark.gpu
def test_the_model_itself_steps_where_there_are_no_kernels() -> None:
    net = _model(torch.float32).cuda()
    assert token_step(net, net.make_cache(1, 2, all_slots=True)) is not None
    assert token_step(net, net.make_cache(1, 2)) is None  # whose shapes grow
    with torch.autocast("cuda", torch.bfloat16):
        assert token_step(net, net.make_cache(1, 2, all_slots=True)) is None
    net = net.double()
    assert token_step(net, net.make_cache(1, 2, all_slots=True)) is None


@pytest.mark.gpu
def test_kernels_refuse_a_full_cache_and_generate_the_same_text() -> None:
    net = _model(torch.float32).cuda()
    ways: list[dict[str, Any]] = [{"temperature": 0}, {"beam": 3}]  # six rows from two
    for knobs in ways:
        found = generate(net, [[0], [3, 1]], max_new_tokens=6, **knobs)
        afresh = generate(net, [[0], [3, 1]], max_new_tokens=6, cache=False, **knobs)
        assert found.tokens.equal(afresh.tokens)
    with torch.inference_mode():
        caches = net.make_cache(1, 2, all_slots=True)
        net(torch.zeros(1, 2, dtype=torch.long, device="cuda"), cache=caches)
        step = token_step(net, caches)
        assert step is not None
        with pytest.raises(ValueError, match="the cache is full"):
            step(torch.zeros(1, dtype=torch.long, device="cuda"))


@pytest.mark.gpu
def test_a_step_beyond_a_full_row_writes_to_its_spare_slot() -> None:
    """As steps do that are taken before a graph is captured, and then forgotten."""
    cache = KeyValueCache(2, 3, kv_heads=2, d_k=4, all_slots=True, device="cuda")
    cache.lengths.copy_(torch.tensor([5, 1]))
    _steps_on_cuda._looked_back(torch.ones(2, 24, device="cuda"), cache, 2)
    for memory in (cache.keys, cache.values):
        assert memory.any(-1).nonzero().tolist() == [[0, 0, 3], [0, 1, 3], [1, 0, 1], [1, 1, 1]]
