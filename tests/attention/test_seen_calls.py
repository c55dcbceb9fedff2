"""Calls of attention that are hard to see: broadcast, in place, masked by hand, not finite."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.attention.test_attention_maps import INSTRUMENTS, D, H, N, T, close, x_of
from vademecum.attention import attention, attention_entropy, attention_maps, attention_rank


class Code(nn.Module):
    """A model of a function."""

    def __init__(self, run):
        super().__init__()
        self.run, self.soft = run, nn.Softmax(-1)

    def forward(self, *args):
        return self.run(*args)


def softmax_of(x):
    return (x @ x.mT).softmax(-1)


WAYS = {
    "times -1": lambda x: (-(x @ x.mT).neg()).softmax(-1),
    "transposed": lambda x: (x @ x.mT).transpose(1, 2).softmax(-1),
    "permuted": lambda x: (x @ x.mT).permute(0, 2, 1).softmax(-1),
    "double and back": lambda x: (x @ x.mT).double().softmax(-1).float(),
    "special": lambda x: torch.special.softmax(x @ x.mT, -1),
    "subtracted from": lambda x: (0 - (-1 * (x @ x.mT))).softmax(-1),
    "sliced": lambda x: (x @ F.pad(x, (0, 0, 0, 2)).mT)[..., : x.shape[1]].softmax(-1),
    "changed afterwards": lambda x: softmax_of(x).mul_(0.5),
    "sparse before": lambda x: softmax_of(torch.stack([torch.eye(T).to_sparse() @ a for a in x])),
}


@pytest.mark.parametrize("way", WAYS)
def test_attention_maps_of_scores_however_they_are_written(way):
    x = x_of()
    (found,) = attention_maps(Code(lambda x: WAYS[way](x) @ x), x).weights
    close(found[:, 0].float(), softmax_of(x))


def test_attention_maps_of_a_softmax_with_five_axes_and_a_sink():
    x = x_of(2, 3, 2, T, 4)
    (found,) = attention_maps(Code(lambda x: softmax_of(x) @ x), x).weights
    close(found, softmax_of(x).flatten(1, 2))
    x, sink = x_of(), torch.zeros(N, T, 1)
    code = Code(lambda x: torch.cat([x @ x.mT, sink], -1).softmax(-1)[..., :-1] @ x)
    close(attention_maps(code, x).weights[0][:, 0], torch.cat([x @ x.mT, sink], -1).softmax(-1))


def test_what_is_changed_after_a_fused_call_was_seen_before():
    def run(x):
        q = x[:, None].clone()
        y = F.scaled_dot_product_attention(q, q, q)
        q.zero_()
        return y

    x = x_of()
    close(attention_maps(Code(run), x).weights[0][:, 0], attention(x, x, x).weights)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("masked", [True, False])
def test_attention_maps_of_queries_that_are_broadcast(heads, masked):
    q, k = torch.randn(1, heads, 4, 6), torch.randn(N, 2, 7, 6)
    mask = (torch.arange(7) < torch.tensor([[7], [3], [1]]))[:, None, None] if masked else None
    code = Code(lambda k: F.scaled_dot_product_attention(q, k, k, attn_mask=mask))
    close(
        attention_maps(code, k).weights[0], attention(q.expand(N, 2, 4, 6), k, k, mask=mask).weights
    )


@pytest.mark.parametrize("more", [True, False])
def test_attention_maps_of_torchs_function_whose_masks_hide(more):
    layer = nn.MultiheadAttention(D, H, add_bias_kv=more, add_zero_attn=more)
    padding = torch.arange(T) >= torch.tensor([[5], [3], [1]])
    masks = {"attn_mask": torch.ones(T, T).triu(1).bool(), "key_padding_mask": padding}
    weights = (layer.in_proj_weight, layer.in_proj_bias, layer.bias_k, layer.bias_v, more, 0.0)
    last = (layer.out_proj.weight, layer.out_proj.bias)

    def run(x):  # the layer itself makes numbers of such masks
        x = x.transpose(0, 1)
        function, how = F.multi_head_attention_forward, {**masks, "average_attn_weights": False}
        return function(x, x, x, D, H, *weights, *last, **how)

    x = x_of()
    wanted = run(x)[1]
    assert wanted is not None
    close(attention_maps(Code(run), x).weights[0], wanted.detach())


@pytest.mark.parametrize("size", [T, 140])
def test_rows_without_keys_are_zero_also_where_the_model_makes_them_nan(size):
    def run(x, mask):
        return (x @ x.mT).masked_fill(~mask, -torch.inf).softmax(-1) @ x

    x, mask = x_of(N, size, 6), torch.rand(N, size, size) > 0.3
    mask[0, 2] = False
    found = attention_maps(Code(run), (x, mask)).weights[0]
    wanted = attention(x, x, x, mask=mask, scale=1.0).weights
    close(found[:, 0], wanted)
    code = Code(lambda x, mask: F.scaled_dot_product_attention(x, x, x, attn_mask=mask, scale=1.0))
    for instrument in (attention_entropy, attention_rank):
        close(instrument(Code(run), (x, mask))[1], instrument(code, (x, mask))[1])


@pytest.mark.parametrize("size", [T, 140])
@pytest.mark.parametrize("instrument", INSTRUMENTS)
def test_weights_that_are_not_finite_are_told_as_nan(instrument, size):
    x = x_of(2, size, 6)
    bad = torch.tensor([1.0, torch.nan])[:, None, None]
    (found,) = instrument(Code(lambda x: (x @ x.mT * bad).softmax(-1) @ x), x)[1]
    assert found[1].isnan().all()
    assert found[0].isfinite().all()


def test_maps_are_in_single_precision_under_autocast_and_need_no_gradients():
    def run(x):
        with torch.autocast("cpu", torch.bfloat16), torch.enable_grad():
            q = x[:, None].clone().requires_grad_()
            return F.scaled_dot_product_attention(q, q, q)

    x = x_of().bfloat16().float()
    (found,) = attention_maps(Code(run), x).weights
    assert not found.requires_grad
    close(found[:, 0], attention(x, x, x).weights)


def test_tokens_are_not_the_scores_that_a_softmax_layer_is_given():
    code = Code(lambda x: code.soft(x @ x.mT) @ x)
    x = x_of()
    apart = (x - x.mean(1, keepdim=True)).norm(dim=(1, 2)) / x.norm(dim=(1, 2))
    found = attention_rank(code, x)
    close(found.before, apart.mean()[None])
    assert found.after < found.before


@pytest.mark.parametrize("instrument", INSTRUMENTS)
def test_no_examples_are_refused(instrument):
    with pytest.raises(ValueError, match="x must hold a tensor with examples along its first axis"):
        instrument(Code(softmax_of), (x_of()[:0],))


def test_hooks_of_the_model_itself_may_attend():
    code, x = Code(lambda x: x), x_of()
    with code.register_forward_pre_hook(lambda _, args: softmax_of(args[0]) @ args[0]):
        found = attention_maps(code, x)
    assert found.names == ("",)
    close(found.weights[0][:, 0], softmax_of(x))
