"""Foreign models are examined with more examples than they come with, which must differ."""

import torch
from torch import nn

from bench.outside.cases import Subject
from bench.outside.examined import _enlarged


def test_tokens_come_in_other_orders():
    ids = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8, 9], [9, 1, 1, 5, 2, 8, 4, 4, 7]])
    x = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    found = _enlarged(Subject(nn.Identity(), x, torch.tensor([0, 1])))
    more = found.x["input_ids"]
    assert len(more.unique(dim=0)) == len(more) == 16
    assert more.sort(1).values.equal(ids.sort(1).values.repeat_interleave(8, 0))
    assert bool((found.x["attention_mask"] == 1).all())
    assert found.y.equal(torch.tensor([0, 1]).repeat_interleave(8))


def test_numbers_come_with_noise():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    found = _enlarged(Subject(nn.Identity(), x, torch.tensor([0, 1])))
    assert len(found.x.unique(dim=0)) == 16
