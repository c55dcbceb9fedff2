"""What sets, colours and ceilings refuse, and in which words."""

import re
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.geometry import DeepSets, PointNet, critical_set, weisfeiler_leman, wl_ceiling

X, ROWS, E = torch.zeros(2, 4, 3), torch.zeros(5, 3), torch.tensor([[0, 1], [1, 2]])
SUM = DeepSets(nn.Identity(), nn.Identity())
MAX = DeepSets(nn.Identity(), nn.Identity(), aggregate="max")
POINTS = PointNet(3, 2, width=16).eval()
NONE = torch.zeros(2, 4, dtype=torch.bool)


def odd(thing) -> Any:
    return thing


class Ends(nn.Module):
    def forward(self, x, edges):
        return x.sum() / 0


MISTAKES = [
    (lambda: DeepSets(nn.Identity(), nn.Identity(), aggregate=odd("min")),
     "aggregate must be one of 'sum', 'mean', 'max', got 'min'"),
    (lambda: SUM(ROWS), "x must be floating point, (n, M, d), or (N, d) with segments, got"),
    (lambda: SUM(X.long()), "with segments, got torch.int64 (2, 4, 3)"),
    (lambda: SUM(odd("x")), "with segments, got str"),
    (lambda: SUM(X, segments=torch.zeros(2).long()), "x must be floating point, (N, d) with segm"),
    (lambda: SUM(ROWS, segments=torch.zeros(4).long()),
     "segments must be 5 numbers, one for each row of x, got shape (4,)"),
    (lambda: SUM(ROWS, segments=torch.zeros(5)), "segments must be int64 or int32, got torch.flo"),
    (lambda: SUM(ROWS, segments=odd([0] * 5)), "segments must be int64 or int32, got list"),
    (lambda: SUM(ROWS, segments=torch.tensor([0, 0, -1, 1, 1])),
     "segments must be from 0 to 1, got -1"),
    (lambda: SUM(ROWS, segments=torch.tensor([0, 0, 0, 1, 4]), num_sets=3),
     "segments must be from 0 to 2, got 4"),
    (lambda: SUM(ROWS, mask=NONE, segments=torch.zeros(5).long()), "mask must be None with segme"),
    (lambda: SUM(X, num_sets=2), "num_sets must be None without segments, got 2"),
    (lambda: SUM(X, mask=NONE[:, :3]), "mask must be boolean of shape (2, 4), got torch.bool (2,"),
    (lambda: SUM(X, mask=NONE.long()), "mask must be boolean of shape (2, 4), got torch.int64"),
    (lambda: MAX(X, mask=NONE),
     "x must have no empty set where means or maxima are taken, got set 0"),
    (lambda: MAX(ROWS, segments=torch.tensor([0, 0, 2, 2, 2])), "are taken, got set 1"),
    (lambda: MAX(X[:, :0]), "x must have no empty set, got shape (2, 0, 3)"),
    (lambda: POINTS(X[..., :2]), "x must have elements of 3 features, got shape (2, 4, 2)"),
    (lambda: POINTS(ROWS, segments=torch.zeros(5).long(), num_sets=2), "are taken, got set 1"),
    (lambda: PointNet(0), "d must be >= 1, got 0"),
    (lambda: PointNet(3, 0), "num_classes must be >= 1, got 0"),
    (lambda: PointNet(3, width=0), "width must be >= 1, got 0"),
    (lambda: PointNet(3, dropout=2.0), "dropout must be <= 1, got 2.0"),
    (lambda: PointNet(3, task=odd("detection")),
     "task must be one of 'classification', 'segmentation'"),
    (lambda: critical_set(odd("net"), X), "model must be an nn.Module, got str"),
    (lambda: critical_set(SUM, X), "model must take a maximum over points, and none was seen"),
    (lambda: critical_set(nn.Linear(3, 2), X),
     "model must give one output for a cloud, got outputs of shape (1, 4, 2) and, with a point"),
    (lambda: critical_set(MAX, X[0]), "x must have 3 axes, got shape (4, 3)"),
    (lambda: critical_set(MAX, X * torch.nan), "x must be finite, got nan at (0, 0, 0)"),
    (lambda: critical_set(MAX, X, dim=3), "dim must be <= 2, got 3"),
    (lambda: critical_set(MAX, X, mask=NONE),
     "mask must leave points in every cloud, got none in cloud 0"),
    (lambda: critical_set(MAX, X, mask=NONE[:1]), "mask must be boolean of shape (2, 4), got"),
    (lambda: weisfeiler_leman(odd(E)),
     "g1 must be an Adjacency or (edge_index, num_nodes), got Tensor"),
    (lambda: weisfeiler_leman((E, 3), odd(3)), "g2 must be an Adjacency or (edge_index, num_node"),
    (lambda: weisfeiler_leman((E, 2)), "edge_index of g1 must be from 0 to 1, got 2 at (1, 1)"),
    (lambda: weisfeiler_leman((-E, 3)), "edge_index of g1 must be from 0 to 2, got -1 at (0, 1)"),
    (lambda: weisfeiler_leman((E.T[:1], 3)),
     "edge_index of g1 must have the shape (2, E), got (1, 2)"),
    (lambda: weisfeiler_leman((E.double(), 3)), "edge_index of g1 must be int64 or int32, got"),
    (lambda: weisfeiler_leman((odd([0]), 3)), "edge_index of g1 must have the shape (2, E), got l"),
    (lambda: weisfeiler_leman((E, -1)), "num_nodes of g1 must be >= 0, got -1"),
    (lambda: weisfeiler_leman((E, 3), max_iter=-1), "max_iter must be >= 0, got -1"),
    (lambda: weisfeiler_leman((E, 3), colours=torch.zeros(2)),
     "colours must have one row for each of 3 nodes, got shape (2,)"),
    (lambda: weisfeiler_leman((E, 3), edge_colours=torch.zeros(3)),
     "edge_colours must have one row for each of 2 edges, got shape (3,)"),
    (lambda: weisfeiler_leman((E, 3), colours=odd([0, 0, 0])),
     "colours must be a real tensor, got list"),
    (lambda: weisfeiler_leman((E, 3), colours=torch.tensor([0, torch.nan, 0])),
     "colours must be finite, got nan at [1, 0]"),
    (lambda: weisfeiler_leman((E, 3), (E, 3), colours=torch.zeros(3)),
     "colours must be a pair with two graphs, got Tensor"),
    (lambda: weisfeiler_leman((E, 3), (E, 3), colours=(torch.zeros(3), torch.zeros(4))),
     "colours[1] must have one row for each of 3 nodes"),
    (lambda: weisfeiler_leman((E, 3), (E, 3), colours=(torch.zeros(3), torch.zeros(3).long())),
     "colours must be of one form for both graphs, got ['1 of float64', '1 of int64']"),
    (lambda: weisfeiler_leman((E, 3), (E, 3), edge_colours=(torch.zeros(2), None)),
     "edge_colours must be of one form for both graphs, got ['1 of float64', None]"),
    (lambda: wl_ceiling(Ends(), (ROWS, E), ROWS),
     "g2 must hold the graph, integers of shape (2, E) or an Adjacency, got g2 (5, 3)"),
    (lambda: wl_ceiling(Ends(), (E,), (ROWS, E)),
     "g1 must hold features of the nodes beside the edges"),
    (lambda: wl_ceiling(Ends(), (ROWS, E + 3), (ROWS, E)),
     "edge_index must be < num_nodes = 5, got 5 at (1, 1)"),
    (lambda: wl_ceiling(Ends(), (ROWS, E), (ROWS, E)),
     "model must give finite outputs, and gives none for any weights"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
