"""Step by step with a cache: what all tokens at once give, for ragged rows and beams, too."""

import pytest
import torch

from vademecum.attention import (
    KeyValueCache,
    MultiHeadAttention,
    TransformerDecoder,
    TransformerEncoder,
)

LAYERS = [
    {},
    {"kv_heads": 2},
    {"rotary": 10.0},
    {"d_k": 6, "d_v": 3, "rotary": 10.0, "kv_heads": 1},
]


def made(**knobs):
    return MultiHeadAttention(16, 4, **knobs).double().requires_grad_(False)


@pytest.mark.parametrize("all_slots", [False, True])
@pytest.mark.parametrize("portions", [[1] * 7, [3, 1, 1, 2], [7], [2, 5]], ids=str)
@pytest.mark.parametrize("knobs", LAYERS, ids=str)
def test_cached_steps_are_the_whole_sequence(knobs, portions, all_slots):
    layer, x = made(**knobs), torch.randn(3, 7, 16).double()
    cache = layer.cache(3, 9, all_slots=all_slots)
    memory = cache.keys.data_ptr()
    steps = [layer(part, causal=True, cache=cache) for part in x.split(portions, 1)]
    assert torch.allclose(torch.cat(steps, 1), layer(x, causal=True), rtol=0, atol=1e-13)
    assert cache.keys.data_ptr() == memory
    assert cache.lengths.tolist() == [7, 7, 7]


@pytest.mark.parametrize("all_slots", [False, True])
@pytest.mark.parametrize("knobs", LAYERS, ids=str)
def test_ragged_prompts_continue_as_each_does_alone(knobs, all_slots):
    layer, prompts = made(**knobs), torch.tensor([4, 1, 2])
    x = torch.randn(3, 9, 16).double()
    cache = layer.cache(3, 9, all_slots=all_slots)
    padded = torch.where(torch.arange(4)[:, None] < prompts[:, None, None], x[:, :4], torch.nan)
    first = layer(padded, causal=True, cache=cache, lengths=prompts)
    for i, length in enumerate(prompts):
        alone = layer(x[i : i + 1, :length], causal=True)
        assert torch.allclose(first[i, :length], alone[0], rtol=0, atol=1e-12)
    now = x
    for step in range(5):
        now = torch.stack([x[i, length + step] for i, length in enumerate(prompts)])[:, None]
        y = layer(now, causal=True, cache=cache)
        for i, length in enumerate(prompts):
            alone = layer(x[i : i + 1, : length + step + 1], causal=True)[0, -1]
            assert torch.allclose(y[i, 0], alone, rtol=0, atol=1e-12)
    assert cache.lengths.tolist() == [9, 6, 7]
    with pytest.raises(ValueError, match="the cache is full: 10 tokens exceed capacity=9"):
        layer(now, causal=True, cache=cache)
    y = layer(x[:, :2], causal=True, cache=cache, lengths=torch.tensor([0, 2, 1]))
    assert cache.lengths.tolist() == [9, 8, 8]
    wanted = layer(torch.cat([x[1:2, :6], x[1:2, :2]], 1), causal=True)[0, 6:]
    assert torch.allclose(y[1], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("all_slots", [False, True])
def test_weights_and_masks_over_a_cache(all_slots):
    layer, x = made(), torch.randn(2, 5, 16).double()
    cache = layer.cache(2, 6, all_slots=all_slots)
    layer(x[:, :3], causal=True, cache=cache)
    S = 6 if all_slots else 5
    mask = torch.ones(2, 4, 2, S, dtype=torch.bool)
    mask[0, :, :, 1] = False
    found = layer(x[:, 3:], causal=True, cache=cache, mask=mask, weights=True)
    full = torch.ones(2, 4, 5, 5, dtype=torch.bool)
    full[0, :, 3:, 1] = False
    wanted = layer(x, causal=True, mask=full, weights=True)
    assert torch.allclose(found.output, wanted.output[:, 3:], rtol=0, atol=1e-13)
    assert torch.allclose(found.weights[..., :5], wanted.weights[:, :, 3:], rtol=0, atol=1e-13)
    assert not found.weights[..., 5:].any()


@pytest.mark.parametrize("all_slots", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
def test_without_causality_a_query_sees_all_of_the_cache(all_slots, ragged):
    layer, x = made(), torch.randn(2, 5, 16).double()
    cache = layer.cache(2, 8, all_slots=all_slots)
    lengths = torch.tensor([3, 1 if ragged else 3])
    layer(x[:, :3], cache=cache, lengths=lengths)
    y = layer(x[:, 3:], cache=cache)
    for i, length in enumerate(lengths):
        seen = torch.cat([x[i : i + 1, :length], x[i : i + 1, 3:]], 1)
        wanted = layer(x[i : i + 1, 3:], seen)
        assert torch.allclose(y[i], wanted[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("all_slots", [False, True])
@pytest.mark.parametrize("rows", [[2, 0, 0], [1, 1, 2, 0, 2], [1]], ids=str)
def test_reordered_rows_go_on_as_their_origins(rows, all_slots):
    layer, x = made(rotary=10.0), torch.randn(3, 5, 16).double()
    cache = layer.cache(3, 6, all_slots=all_slots)
    layer(x[:, :4], causal=True, cache=cache, lengths=torch.tensor([4, 2, 3]))
    memory = cache.keys.data_ptr()
    cache.reorder(torch.tensor(rows))
    assert (cache.keys.data_ptr() == memory) == (len(rows) == 3)
    new = torch.randn(len(rows), 1, 16).double()
    y = layer(new, causal=True, cache=cache)
    for i, origin in enumerate(rows):
        length = [4, 2, 3][origin]
        whole = torch.cat([x[origin, :length], new[i]])[None]
        assert torch.allclose(y[i, 0], layer(whole, causal=True)[0, -1], rtol=0, atol=1e-12)


def test_positions_may_be_told():
    layer, x = made(rotary=10.0), torch.randn(2, 5, 16).double()
    positions = torch.tensor([0, 2, 3, 7, 9])
    cache = layer.cache(2, 5)
    parts = zip(x.split((3, 2), 1), positions.split((3, 2)), strict=True)
    steps = [layer(part, causal=True, cache=cache, positions=at) for part, at in parts]
    wanted = layer(x, causal=True, positions=positions)
    assert torch.allclose(torch.cat(steps, 1), wanted, rtol=0, atol=1e-13)
    assert not torch.allclose(wanted, layer(x, causal=True), rtol=0, atol=1e-3)


def test_a_cleared_cache_begins_anew():
    layer, x = made(), torch.randn(2, 5, 16).double()
    cache = layer.cache(2, 5)
    layer(x, causal=True, cache=cache, lengths=torch.tensor([5, 2]))
    cache.clear()
    assert torch.allclose(layer(x, causal=True, cache=cache), layer(x, causal=True), atol=1e-13)
    cache.reserve(0)
    with pytest.raises(ValueError, match="the cache is full: 6 tokens exceed capacity=5"):
        cache.reserve(1)


@pytest.mark.parametrize("all_slots", [False, True])
def test_a_cleared_cache_forgets_a_nan(all_slots):
    layer, x = made(), torch.randn(2, 5, 16).double()
    cache = layer.cache(2, 6, all_slots=all_slots)
    layer(torch.full_like(x, torch.nan), causal=True, cache=cache)
    cache.clear()
    lengths = torch.tensor([5, 2])
    found = layer(x, causal=True, cache=cache, lengths=lengths)
    wanted = layer(x, causal=True)
    for i, length in enumerate(lengths):
        assert torch.allclose(found[i, :length], wanted[i, :length], rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_caches_are_kept_in_what_autocast_casts_to(dtype):
    layer, x = made(rotary=10.0, kv_heads=2).to(dtype), torch.randn(2, 5, 16).to(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        cache = layer.cache(2, 5)
        steps = [layer(x[:, t : t + 1], causal=True, cache=cache) for t in range(5)]
        wanted = layer(x, causal=True)
        assert layer.remember(x).keys.dtype == cache.keys.dtype
    assert cache.keys.dtype == (dtype if dtype == torch.float64 else torch.bfloat16)
    tol = 1e-12 if dtype == torch.float64 else 0.05
    assert torch.allclose(torch.cat(steps, 1), wanted, rtol=0, atol=tol)


def test_lengths_are_cut_where_they_are_not_looked_at(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    layer, x = made(), torch.randn(3, 4, 16).double()
    cache = layer.cache(3, 6)
    layer(x, causal=True, cache=cache, lengths=torch.tensor([9, -2, 3]))
    assert cache.lengths.tolist() == [4, 0, 3]


def test_a_full_cache_of_even_rows_is_refused_without_a_look(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    layer, x = made(), torch.randn(2, 3, 16).double()
    cache = layer.cache(2, 3)
    layer(x, causal=True, cache=cache)
    with pytest.raises(ValueError, match="the cache is full: 4 tokens exceed capacity=3"):
        layer(x[:, :1], causal=True, cache=cache)


def test_a_refused_step_leaves_the_cache_as_it_was():
    layer, x = made(), torch.randn(2, 3, 16).double()
    cache = layer.cache(2, 4)
    layer(x[:, :2], causal=True, cache=cache)
    before = cache.lengths.clone(), *(z.clone() for z in cache.contents())
    for how in ({"mask": torch.ones(3, 3, dtype=torch.bool)}, {"lengths": torch.tensor([4, 1])}):
        with pytest.raises(ValueError, match=r"mask|lengths"):
            layer(x, causal=True, cache=cache, **how)
    with pytest.raises(ValueError, match="5 tokens exceed"):
        layer(x, causal=True, cache=cache)
    now = cache.lengths, *cache.contents()
    assert all(torch.equal(a, b) for a, b in zip(now, before, strict=True))


@pytest.mark.parametrize("knobs", [{}, {"norm_first": True, "kv_heads": 2}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_stacks_with_caches_are_stacks_without(knobs, dtype):
    tol = 1e-12 if dtype == torch.float64 else 1e-5
    encoder = TransformerEncoder(16, 4, depth=3, rotary=100.0, **knobs).to(dtype).eval()
    decoder = TransformerDecoder(16, 4, depth=3, **knobs).to(dtype).eval()
    x, z = torch.randn(3, 6, 16).to(dtype), torch.randn(3, 5, 16).to(dtype)
    lengths = torch.tensor([5, 1, 3])
    with torch.no_grad():
        one, two = encoder.cache(3, 6), decoder.cache(z, 6, lengths=lengths)
        first = encoder(x, causal=True)
        second = decoder(x, z, source_lengths=lengths)
        for t in range(6):
            now = x[:, t : t + 1]
            assert torch.allclose(encoder(now, causal=True, cache=one)[:, 0], first[:, t], atol=tol)
            assert torch.allclose(decoder(now, cache=two)[:, 0], second[:, t], rtol=0, atol=tol)


def test_remember_projects_once_and_is_only_read():
    layer = MultiHeadAttention(16, 4, kdim=5, vdim=3).double()
    x, y, z = (torch.randn(2, 4, width).double() for width in (16, 5, 3))
    lengths = torch.tensor([4, 2])
    cache = layer.remember(y, z, lengths=lengths)
    wanted = layer(x, y, values=z, lengths=lengths)
    for _ in range(2):
        assert torch.allclose(layer(x, cache=cache), wanted, rtol=0, atol=1e-13)
    cache.reorder(torch.tensor([1, 1]))
    found = layer(x, cache=cache)
    again = layer(x, y[[1, 1]], values=z[[1, 1]], lengths=lengths[[1, 1]])
    assert torch.allclose(found, again, rtol=0, atol=1e-13)


def test_key_value_cache_takes_the_memory_of_its_keys():
    cache = KeyValueCache(2, 7, kv_heads=3, d_k=4, d_v=5, dtype=torch.bfloat16)
    assert cache.keys.shape == (2, 3, 8, 4)
    assert cache.values.shape == (2, 3, 8, 5)
    assert cache.keys.dtype == torch.bfloat16
    assert repr(cache) == "KeyValueCache(2, 7, kv_heads=3, d_k=4)"
