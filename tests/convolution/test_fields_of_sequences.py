"""`receptive_field` along walks in graphs, in recurrent layers, and behind masks of attention."""

import warnings
from typing import Any

import networkx as nx
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.convolution.field_models import Calls, band
from vademecum.convolution import receptive_field
from vademecum.models import SlowPathWarning


class Walks(nn.Module):
    """Nodes add up their neighbours, several times."""

    def __init__(self, hops: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(hops))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            sent = layer(x)[edge_index[0]]
            x = torch.tanh(x + torch.zeros_like(x).index_add(0, edge_index[1], sent))
        return x


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_nodes_of_a_graph_see_as_many_hops_as_there_are_layers(hops):
    graph = nx.path_graph(9)
    graph.add_edges_from([(0, 9), (9, 10), (4, 11)])
    edges = torch.tensor([*graph.edges, *((b, a) for a, b in graph.edges)]).T
    for node in (0, 4, 10):
        found = receptive_field(Walks(hops), (torch.randn(12, 3), edges), unit=node)
        wanted = nx.single_source_shortest_path_length(graph, node, cutoff=hops)
        assert set(found.mask.nonzero().flatten().tolist()) == set(wanted)
        assert found.size == (len(wanted),)
        assert found.left == 0


def test_recurrent_layers_see_the_past():
    x = torch.randn(1, 6, 3)
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        found = receptive_field(kind(3, 4, 2, batch_first=True), x, unit=2)
        assert found.mask.tolist() == [True] * 3 + [False] * 3
        assert found.left == 0
        both = receptive_field(kind(3, 4, batch_first=True, bidirectional=True), x, unit=2)
        assert both.mask.all()
        assert both.left == 0


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_with_steps_along_the_first_axis(kind):
    turned = Calls(lambda s, x: s.f(x.transpose(0, 1))[0].transpose(0, 1), f=kind(3, 4))
    alone = Calls(  # without a batch
        lambda s, x: s.h(s.f(s.g(x)[0])[0][None]),
        **{"f": kind(3, 4, batch_first=True), "g": nn.Linear(3, 3), "h": nn.Linear(4, 4)},
    )
    for model in (turned, alone):
        found = receptive_field(model, torch.randn(1, 6, 3), unit=2)
        assert found.mask.tolist() == [True] * 3 + [False] * 3
        assert found.left == 0


def test_the_last_state_of_a_recurrent_layer_sees_every_step():
    def forward(self: Any, x: Tensor) -> Tensor:
        y, state = self.f(x)
        return self.g(y + state[-1][:, None])

    model = Calls(forward, f=nn.GRU(3, 4, batch_first=True), g=nn.Linear(4, 4))
    found = receptive_field(model, torch.randn(2, 6, 3), unit=2)
    assert found.mask.all()
    assert found.left == 0


def test_masks_of_heads_are_true_where_they_hide():
    hidden = torch.ones(6, 6).triu(1).bool()
    hidden[:, 1] = True

    def forward(s: Any, x: Tensor) -> Tensor:
        x, weights = x.transpose(0, 1), (s.f.in_proj_weight, s.f.in_proj_bias, None, None, False)
        out = (0.0, s.f.out_proj.weight, s.f.out_proj.bias)
        heads = F.multi_head_attention_forward
        return heads(x, x, x, 4, 2, *weights, *out, attn_mask=hidden)[0].transpose(0, 1)

    model = Calls(forward, f=nn.MultiheadAttention(4, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowPathWarning)  # masks have values
        found = receptive_field(model, torch.randn(1, 6, 4), unit=3)
    assert found.mask.tolist() == [True, False, True, True, False, False]
    assert found.left == 0


def test_several_queries_share_a_key():
    def forward(self: Any, x: Tensor) -> Tensor:
        q, k = x.unflatten(2, (4, 2)).transpose(1, 2), self.k(x).unflatten(2, (2, 2))
        k = k.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
        return self.out(y[:, 1])  # one head of four queries and two keys

    model = Calls(forward, k=nn.Linear(8, 4), out=nn.Linear(2, 3))
    found = receptive_field(model, torch.randn(1, 6, 8), unit=2)
    assert found.mask.tolist() == [True] * 3 + [False] * 3
    assert found.left == 0


@pytest.mark.parametrize(("head", "wanted"), [(0, 3), (1, 3), (2, 0), (3, 0)])
def test_heads_of_queries_see_the_keys_of_their_own_group(head, wanted):
    def forward(self: Any, x: Tensor) -> Tensor:
        first, second = self.k(x), self.k(x).roll(3, 1)  # each of one position
        k = torch.stack([first, second], 1)
        q = self.k(torch.zeros_like(x))[:, None].expand(-1, 4, -1, -1)
        only = torch.eye(6, dtype=torch.bool)
        y = F.scaled_dot_product_attention(q, k, k, attn_mask=only, enable_gqa=True)
        return self.out(y[:, head])

    model = Calls(forward, k=nn.Linear(8, 2), out=nn.Linear(2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowPathWarning)
        found = receptive_field(model, torch.randn(1, 6, 8), unit=3)
    assert found.mask.nonzero().flatten().tolist() == [wanted]
    assert found.left == 0


def test_a_mask_for_each_head():
    masks = torch.stack([band(6), torch.eye(6, dtype=torch.bool), band(6).flip(1)])

    def forward(self: Any, x: Tensor) -> Tensor:
        heads = self.f(x).unflatten(2, (3, 2)).transpose(1, 2)
        y = F.scaled_dot_product_attention(heads, heads, heads, attn_mask=masks)
        return self.out(y[:, self.head])

    for head, mask in enumerate(masks):
        model = Calls(forward, f=nn.Linear(6, 6), out=nn.Linear(2, 3), head=head)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SlowPathWarning)
            found = receptive_field(model, torch.randn(2, 6, 6), unit=1)
        wanted = mask[1].clone()
        wanted[1] = True  # the query itself
        assert torch.equal(found.mask, wanted)
    hidden = (~masks[:2]).repeat(2, 1, 1)  # both heads of two examples
    model = Calls(lambda s, x: s.f(x, x, x, attn_mask=hidden)[0], f=nn.MultiheadAttention(4, 2))
    turned = Calls(lambda s, x: s.f(x.transpose(0, 1)).transpose(0, 1), f=model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowPathWarning)
        found = receptive_field(turned, torch.randn(2, 6, 4), unit=1)
    assert torch.equal(found.mask, masks[0][1])
    assert found.left == 0


def test_masks_of_attention():
    heads = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
    hidden = nn.Transformer.generate_square_subsequent_mask(6)
    model = Calls(lambda s, x: s.f(x, src_mask=s.hidden), f=heads, hidden=hidden)
    product = F.scaled_dot_product_attention
    near = Calls(lambda s, x: product(s.f(x), x, x, attn_mask=band(6)), f=nn.Linear(4, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowPathWarning)  # masks have values
        assert receptive_field(model, (6, 4), unit=3).mask.tolist() == [True] * 4 + [False] * 2
        assert receptive_field(near, (6, 4), unit=3).mask.tolist() == [False] * 2 + [True] * 3 + [
            False
        ]


def test_tokens():
    model = nn.Sequential(nn.Embedding(10, 4), nn.LSTM(4, 3, batch_first=True))
    found = receptive_field(model, torch.randint(10, (2, 7)), unit=4)
    assert found.mask.tolist() == [True] * 5 + [False] * 2
    assert found.left == 0


def test_masks_beside_tokens_stay():
    def forward(self: Any, ids: Tensor, mask: Tensor) -> Tensor:
        return self.g(self.f(ids) * mask[..., None])[0]

    model = Calls(forward, f=nn.Embedding(10, 4), g=nn.LSTM(4, 3, batch_first=True))
    mask = torch.ones(2, 7)
    mask[:, 1] = 0.0
    found = receptive_field(model, (torch.randint(10, (2, 7)), mask), unit=3)
    assert found.mask.tolist() == [True] * 4 + [False] * 3
    assert found.measured is not None
    assert found.measured.tolist() == [True, False, True, True] + [False] * 3
