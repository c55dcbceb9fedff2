"""Actions on inputs as models of others take them, in low precision, and as they are drawn."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vademecum.geometry import (
    FeatureAction,
    GraphAction,
    Group,
    GroupConv2d,
    ImageAction,
    PointAction,
    Representation,
    draw_orbit,
    equivariance_error,
    invariance_error,
    symmetrize,
)

EDGES = torch.tensor([[0, 1, 2, 3, 3], [1, 0, 1, 2, 0]])


class Means(nn.Module):
    """The mean of the features of each graph after a step along its edges, as in PyG."""

    def forward(self, x, edge_index, batch=None):
        x = x.index_add(0, edge_index[1], x[edge_index[0]]).tanh()
        batch = torch.zeros(len(x)).long() if batch is None else batch
        ones = torch.ones(len(x), 1, dtype=x.dtype)
        sums = torch.zeros(int(batch.max()) + 1, x.shape[1] + 1, dtype=x.dtype)
        sums = sums.index_add(0, batch, torch.cat([x, ones], 1))
        return sums[:, :-1] / sums[:, -1:]


def test_what_belongs_to_nodes_moves_with_them():
    x, batch = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 0, 0, 1])
    edges, group = EDGES[:, :3], Group.symmetric(4)
    assert invariance_error(Means(), (x, edges, batch), group=group).error < 1e-15
    weights = torch.rand(3)  # of the edges, which keep their order
    moved = GraphAction(group)(5, (x, edges, batch, weights))
    points = group.permutation(5)
    assert moved[2][points].equal(batch)
    assert moved[3] is weights


@pytest.mark.parametrize("order", [("x", "edge_index", "batch"), ("batch", "edge_index", "x")])
def test_graphs_may_be_named(order):
    given = {"x": torch.randn(4, 3, dtype=torch.float64), "edge_index": EDGES,
             "batch": torch.tensor([0, 1, 0, 0])}  # fmt: skip
    found = invariance_error(Means(), {k: given[k] for k in order}, group=Group.symmetric(4))
    assert isinstance(found.action, GraphAction)
    assert found.error < 1e-15


def test_two_sentences_are_no_graph():
    """Integers (2, T) are edges beside features in a tuple, or under their name, alone."""

    class Words(nn.Module):
        def forward(self, input_ids, attention_mask):
            return F.one_hot(input_ids * attention_mask, 9).double().sum(1)

    words = {"input_ids": torch.randint(9, (2, 5)), "attention_mask": torch.ones(2, 5).long()}
    found = invariance_error(Words(), words, group=Group.symmetric(5))
    assert found.errors.shape == (120, 2)
    assert found.error == 0


def test_images_among_other_inputs_are_turned():
    class Two(nn.Module):
        def forward(self, image, scale):
            return image * scale[:, :, None, None]

    given = {"image": torch.randn(2, 4, 5, 5), "scale": torch.randn(2, 4)}
    found = equivariance_error(Two(), given, group=Group.cyclic(4))
    assert isinstance(found.action, ImageAction)
    assert found.error == 0


def test_low_precision_is_turned_as_high_precision_is():
    x, turn = torch.rand(1, 1, 60, 224), ImageAction(Group.cyclic(8))
    for dtype in (torch.bfloat16, torch.float16):
        moved = turn(1, x.to(dtype))
        assert moved.dtype == dtype
        wanted = turn(1, x.to(dtype).double())
        assert (moved.double() - wanted).abs().max() <= torch.finfo(dtype).eps


def test_features_are_not_moved_by_a_table_that_only_looks_like_turns():
    with pytest.raises(ValueError, match="group must be"):
        FeatureAction(Group.from_table(Group.cyclic(4).table))


def test_buffers_that_models_write_into_are_as_they_were():
    class Counts(nn.Module):
        calls: torch.Tensor

        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x.sum(1, keepdim=True) * self.calls

    model = Counts()
    assert invariance_error(model, torch.eye(4), group=Group.symmetric(4)).error == 0
    assert float(model.calls) == 0


def test_a_single_sample_has_no_standard_error():
    found = invariance_error(nn.Flatten(), torch.eye(4), group=Group.cyclic(4), samples=1)
    assert found.standard_error != found.standard_error


def test_symmetrize_asks_for_one_answer_an_example():
    class Pooled(nn.Module):
        def forward(self, x):
            return x.mean(0, keepdim=True)

    x, group = torch.randn(3, 4), Group.cyclic(4)
    with pytest.raises(ValueError, match=r"for each of 12 examples, got shape \(1, 4\)"):
        symmetrize(Pooled(), group)(x)
    alone = symmetrize(Pooled(), group, action=PointAction(group, axis=0))
    torch.testing.assert_close(alone(x.T), x.mean(1, keepdim=True).T.expand(1, 3))
    wide = torch.randn(2, 1, 1, 5)  # answers (1, 5) and (5, 1), which could be broadcast
    with pytest.raises(ValueError, match="one shape for all elements"):
        symmetrize(nn.Identity(), group)(wide)


def test_group_conv2d_survives_the_device_meta():
    made = GroupConv2d(2, 3, 3, group="p4m")
    with torch.device("meta"):
        empty = GroupConv2d(2, 3, 3, group="p4m")
    again = empty.to_empty(device="cpu")
    again.index.fill_(-1)
    again.load_state_dict(made.state_dict())
    x = torch.randn(1, 2, 8, 4, 5)
    assert again(x).equal(made(x))
    again.index.fill_(-1)
    again.reset_parameters()
    assert again.index.equal(made.index)
    assert again.group.table.equal(made.group.table)  # and not on the device meta


def test_representations_live_where_their_tables_do():
    group = Group.cyclic(2)
    swap = Representation(group, torch.tensor([[0, 1], [1, 0]], dtype=torch.int32))
    assert swap.characters().tolist() == [2, 0]
    assert swap.permutation(1).dtype == torch.long


def test_draw_orbit_knows_where_points_lie():
    group = Group.cyclic(6)
    signals = torch.randn(1, 2, 6)
    found = invariance_error(nn.Flatten(), signals, group=group, action=PointAction(group, axis=2))
    curves = [line for line in draw_orbit(found).axes[0].lines if line.get_marker() == "."]
    assert len(curves) == 6 * 2
    assert np.shape(curves[0].get_xydata()) == (6, 2)
    flat = invariance_error(nn.Flatten(), torch.rand(2, 5, 5), group=Group.cyclic(4),
                            action=ImageAction(Group.cyclic(4)))  # fmt: skip
    assert len(draw_orbit(flat).axes[0].images) == 4
    nodes = PointAction(group, axis=0)
    whole = invariance_error(nn.Identity(), torch.randn(6, 3), group=group, action=nodes)
    assert len(draw_orbit(whole).axes[0].patches) == 6  # errors alone
