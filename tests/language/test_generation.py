"""Generation: alone and in company, with and without a cache, greedy, drawn and by beams."""

import gc
import itertools
import math
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.language import GPT, generate, stream_tokens
from vademecum.language.generation._choices import Choice, restricted
from vademecum.language.generation._readers import CachedReader
from vademecum.language.generation._runs import _key, can_be_captured
from vademecum.language.generation.continuations import _planned

LENGTHS = (3, 9, 1, 5)
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "stopped": {"temperature": 0, "stop": [3, 7]},
    "one choice": {"top_k": 1},
    "beam": {"beam": 3},
    "beam that stops": {"beam": 3, "stop": 7},
}


def model(V: int = 11, context: int = 40) -> GPT:
    made = GPT(V=V, d=12, layers=2, heads=3, context=context)
    for p in made.parameters():
        nn.init.normal_(p, 0, 0.6)
    return made.double()


def prompts(V: int = 11) -> list[torch.Tensor]:
    return [torch.randint(V, (T,)) for T in LENGTHS]


def chain(*rows: list[float]) -> nn.Module:
    return nn.Embedding.from_pretrained(torch.tensor(rows).double().log())


@pytest.mark.parametrize("way", WAYS)
def test_ragged_prompts_get_what_each_gets_alone_with_and_without_a_cache(way):
    net, rows, knobs = model(), prompts(), WAYS[way]
    together = generate(net, rows, max_new_tokens=12, **knobs)
    whole = generate(net, rows, max_new_tokens=12, cache=False, **knobs)
    assert together.tokens.equal(whole.tokens)
    assert together.lengths.equal(whole.lengths)
    torch.testing.assert_close(together.log_probs, whole.log_probs, rtol=0, atol=1e-10)
    for row, tokens, length in zip(rows, together.tokens, together.lengths, strict=True):
        alone = generate(net, row, max_new_tokens=12, **knobs)
        assert int(alone.lengths) == int(length)
        assert alone.tokens[0].equal(tokens[: int(length)])


def test_drawn_rows_depend_on_their_own_numbers_alone():
    net, rows = model(), prompts()
    knobs: Any = {"max_new_tokens": 12, "top_p": 0.9, "temperature": 1.3}
    first = generate(net, rows, generator=torch.Generator().manual_seed(1), **knobs)
    others = [rows[0], *reversed(rows[1:])]
    again = generate(net, others, generator=torch.Generator().manual_seed(1), **knobs)
    alone = generate(net, rows[:1], generator=torch.Generator().manual_seed(1), **knobs)
    assert first.tokens[0].equal(again.tokens[0])
    assert first.tokens[0].equal(alone.tokens[0])
    assert not first.tokens[1].equal(again.tokens[3])  # the same prompt with other numbers


def test_log_probs_are_those_of_the_model_for_what_was_taken():
    net, rows = model(), prompts()
    found = generate(net, rows, max_new_tokens=6, temperature=0.5, top_k=4)
    for i, row in enumerate(rows):
        whole = torch.cat([row, found.tokens[i]])
        logs = net(whole[None, :-1])[0].detach().log_softmax(1)
        steps = range(len(row) - 1, len(whole) - 1)
        assert float(found.log_probs[i]) == pytest.approx(
            sum(float(logs[t, whole[t + 1]]) for t in steps), abs=1e-10
        )


def test_generate_takes_argmaxes_step_by_step():
    net, row = model(), torch.randint(11, (4,))
    for _ in range(8):
        row = torch.cat([row, net(row[None])[0, -1].argmax()[None]])
    assert generate(net, row[:4], max_new_tokens=8, temperature=0).tokens[0].equal(row[4:])


def test_beam_search_finds_the_best_of_all_strings_if_nothing_is_dropped():
    net, row = model(V=3), torch.tensor([2, 0])
    strings = list(itertools.product(range(3), repeat=3))
    logs = []
    for string in strings:
        whole = torch.tensor([*row.tolist(), *string])
        p = net(whole[None, :-1])[0].detach().log_softmax(1)
        logs.append(sum(float(p[t + 1, s]) for t, s in enumerate(string)))
    found = generate(net, row, max_new_tokens=3, beam=27)
    assert tuple(found.tokens[0].tolist()) == strings[logs.index(max(logs))]
    assert float(found.log_probs) == pytest.approx(max(logs), abs=1e-10)


@pytest.mark.parametrize("cache", [True, False])
def test_stream_tokens_gives_what_generate_gives_and_leaves_the_model_between(cache):
    net, rows = model().train(), prompts()
    knobs: Any = {"max_new_tokens": 15, "stop": 4, "cache": cache}
    found = generate(net, rows, generator=torch.Generator().manual_seed(2), **knobs)
    steps = []
    for token in stream_tokens(net, rows, generator=torch.Generator().manual_seed(2), **knobs):
        assert net.training
        assert not torch.is_inference_mode_enabled()
        steps.append(token)
    assert torch.stack(steps, 1).equal(found.tokens)
    for row, length in zip(found.tokens, found.lengths, strict=True):
        assert (row[int(length) - 1 :] == 4).all() or int(length) == 15


def test_draws_follow_the_law_of_the_model():
    p = torch.tensor([0.1, 0.2, 0.3, 0.4])
    net = nn.Embedding.from_pretrained(p.log().expand(4, 4))
    n = 4000
    found = generate(net, torch.zeros(n, 1, dtype=torch.long), max_new_tokens=2)
    for column in found.tokens.T:
        counts = column.bincount(minlength=4)
        chi = float(((counts - n * p).square() / (n * p)).sum())
        assert chi < 30  # three degrees of freedom: beyond once in a million


def test_temperature_top_k_and_top_p_by_hand():
    logits = torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log()
    p = restricted(logits, Choice(0.5, None, None)).softmax(1)[0]
    squares = torch.tensor([0.25, 0.0625, 0.0225, 0.01])
    torch.testing.assert_close(p, squares / squares.sum())
    p = restricted(logits, Choice(1.0, 2, None)).softmax(1)[0]
    torch.testing.assert_close(p, torch.tensor([2 / 3, 1 / 3, 0, 0]))
    for top_p, kept in ((0.4, 1), (0.6, 2), (0.75 - 1e-6, 2), (0.75 + 1e-6, 3), (0.95, 4), (1, 4)):
        z = restricted(logits, Choice(1.0, None, top_p))
        assert int(z.isfinite().sum()) == kept, top_p
    z = restricted(logits, Choice(1.0, 3, 0.8))  # of the three kept, 5/9 and 5/18 make up 0.8
    assert int(z.isfinite().sum()) == 2
    tied = restricted(torch.tensor([[1.0, 1.0, 0.0]]), Choice(1.0, 1, 0.3))
    assert tied.isfinite().tolist() == [[True, True, False]]
    assert restricted(torch.tensor([[1e30, 0.0]]), Choice(1e-30, None, None)).softmax(1)[0, 0] == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_temperature_below_all_floats_takes_the_most_probable(dtype):
    net = chain([0.1, 0.6, 0.3], [0.0, 0.2, 0.8], [0.5, 0.2, 0.3]).to(dtype)
    found = generate(net, [0], max_new_tokens=6, temperature=1e-300)
    assert found.tokens.tolist() == [[1, 2, 0, 1, 2, 0]]


def test_graphs_are_for_models_that_they_see_all_of():
    net = model()
    assert can_be_captured(net)
    hook = net.transformer.h[0].register_forward_hook(lambda *_: None)
    assert not can_be_captured(net)
    hook.remove()
    assert can_be_captured(net)
    vars(net.lm_head)["forward"] = lambda x: x
    assert not can_be_captured(net)
    del vars(net.lm_head)["forward"]
    assert can_be_captured(net)
    vars(net.lm_head)["scales"] = [torch.ones(2)]
    assert not can_be_captured(net)


def test_a_graph_is_kept_for_a_model_as_it_was():
    net: Any = model()

    def key():
        return _key(
            _planned(net, [[0]], 9, Choice(0, None, None), None, False, None, True, None, None)
        )

    before = key()
    assert key() == before
    square = net.transformer.h[0].attn.c_proj.weight
    square.data = square.data.t()  # where it was, but the other way round
    turned = key()
    assert turned != before
    nn.utils.parametrize.register_parametrization(net.transformer.wpe, "weight", nn.Softmax(1))
    assert key() != turned


def test_what_is_kept_of_a_reader_holds_no_weights():
    net = model()
    reader = CachedReader(net, 1, 9, torch.device("cpu"))
    weights = [weakref.ref(p) for p in net.parameters()]
    reader.let_go()
    del net
    gc.collect()
    assert not any(weight() is not None for weight in weights)


def test_rows_that_outgrow_the_context_see_their_last_tokens():
    net, rows = model(context=10), prompts()
    found = generate(net, rows, max_new_tokens=14, temperature=0, truncate=True)
    for row, new in zip(rows, found.tokens, strict=True):
        whole = torch.cat([row, new])
        for t in range(len(row), len(whole)):
            logits = net(whole[None, max(0, t - 10) : t])[0, -1]
            assert int(logits.argmax()) == int(whole[t])
    long = torch.randint(11, (25,))
    cut = generate(net, long, max_new_tokens=1, temperature=0, truncate=True)
    assert cut.tokens.equal(generate(net, long[-10:], max_new_tokens=1, temperature=0).tokens)


def test_the_last_token_needs_no_place_in_the_context():
    net = model(context=10)
    assert generate(net, torch.zeros(1, 7, dtype=torch.long), max_new_tokens=4).lengths.item() == 4


def test_the_model_is_left_as_it_was_and_gradients_may_follow():
    net = model().train()
    before = [p.clone() for p in net.parameters()]
    found = generate(net, prompts(), max_new_tokens=3, temperature=0)
    assert net.training
    assert all(p.equal(old) for p, old in zip(net.parameters(), before, strict=True))
    nn.functional.cross_entropy(net(found.tokens).flatten(0, 1), found.tokens.flatten()).backward()


def test_any_module_with_logits_generates():
    class Answer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = chain([0.1, 0.9], [0.8, 0.2])

        def forward(self, input_ids):
            return type("Output", (), {"logits": self.net(input_ids)})()

    found = generate(Answer(), [0], max_new_tokens=4, temperature=0)
    assert found.tokens.tolist() == [[1, 0, 1, 0]]
    assert float(found.log_probs) == pytest.approx(math.log(0.9 * 0.8 * 0.9 * 0.8))
