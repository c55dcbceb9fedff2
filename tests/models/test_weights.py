"""Weights from elsewhere: names, old names, files, and a model that is untouched by misfits."""

import re

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from vademecum.convolution import DenseNet, GoogLeNet, ResNet
from vademecum.models import load_weights


def test_load_weights_takes_state_dicts_and_files(tmp_path):
    source, model, other = (ResNet(18, 3, width=2) for _ in range(3))
    for tensor in source.state_dict().values():
        tensor.copy_(torch.rand(tensor.shape)) if tensor.is_floating_point() else tensor.fill_(7)
    state = source.state_dict()
    load_weights(model, state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    save_file(state, tmp_path / "weights.safetensors")
    load_weights(other, tmp_path / "weights.safetensors")
    assert all(torch.equal(tensor, state[name]) for name, tensor in other.state_dict().items())


def test_old_names_are_mapped():
    """The files of DenseNet say norm.1 and conv.2 where the module says norm1 and conv2."""
    source, model = DenseNet(121, 3, width=1), DenseNet(121, 3, width=1)
    old = {
        re.sub(r"(denselayer\d+)\.(norm|conv)([12])", r"\1.\2.\3", name): tensor
        for name, tensor in source.state_dict().items()
    }
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    load_weights(model, old)
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(model.eval()(x), source.eval()(x))


def test_names_to_ignore():
    source, model = GoogLeNet(3, width=2, auxiliary=True), GoogLeNet(3, width=2)
    with pytest.raises(ValueError, match=re.escape("unknown aux1.conv.conv.weight")):
        load_weights(model, source.state_dict())
    load_weights(model, source.state_dict(), ignore=["aux*"])
    assert torch.equal(model.fc.weight, source.fc.weight)


def test_misfits_are_all_told_and_nothing_is_touched():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    given = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    del given["0.bias"], given["1.num_batches_tracked"]
    given |= {
        "2.weight": torch.zeros(1, 4),
        "3.weight": torch.zeros(1),
        "1.bias": torch.ones(3).long(),
    }
    given["1.running_mean"] = [0.0]
    with pytest.raises(ValueError, match="source does not fit the model") as error:
        load_weights(model, given)
    for part in ("missing 0.bias;", "unknown 3.weight;", "2.weight has the shape (1, 4) and must"
                 " have (1, 3)", "1.bias has the dtype torch.int64 and must have torch.float32",
                 "1.running_mean is list and must be a tensor"):  # fmt: skip
        assert part in str(error.value)
    assert "num_batches_tracked" not in str(error.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_tied_tensors_need_one_name():
    model = nn.Module()
    model.a, model.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    model.b.weight = model.a.weight
    load_weights(model, {"a.weight": torch.ones(2, 2)})
    assert model.b.weight.eq(1).all()


def test_tied_tensors_that_differ_are_refused():
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    second.weight = first.weight
    model, before = nn.Sequential(first, second), first.weight.detach().clone()
    load_weights(model, {"0.weight": before, "1.weight": before.clone()})
    with pytest.raises(ValueError, match=r"0\.weight and 1\.weight are one tensor in the model"):
        load_weights(model, {"0.weight": torch.ones(2, 2), "1.weight": torch.zeros(2, 2)})
    assert first.weight.equal(before)


def test_tensors_without_numbers_are_refused():
    """A copy to the meta device does nothing, and one from it fails half-way."""
    model, thin = nn.Linear(2, 1), nn.Linear(2, 1, device="meta")
    before = model.weight.detach().clone()
    state = {"weight": torch.ones(1, 2), "bias": torch.empty(1, device="meta")}
    with pytest.raises(ValueError, match="bias in the source is on the meta device"):
        load_weights(model, state)
    assert model.weight.equal(before)
    with pytest.raises(ValueError, match="weight of the model is on the meta device"):
        load_weights(thin, model.state_dict())


def test_one_pattern_may_stand_alone():
    model = nn.Linear(2, 1)
    load_weights(model, {**model.state_dict(), "aux": torch.ones(1)}, ignore="aux*")


def test_numbers_take_the_model_s_dtype():
    model = nn.Linear(2, 1, bias=False)
    load_weights(model, {"weight": torch.tensor([[0.5, 2.0]], dtype=torch.float64)})
    assert model.weight.dtype == torch.float32
    assert model.weight.tolist() == [[0.5, 2.0]]


def test_pickled_and_broken_files_are_refused(tmp_path):
    model = nn.Linear(2, 1)
    with pytest.raises(ValueError, match=r"open pickled files with torch\.load"):
        load_weights(model, tmp_path / "weights.pth")
    (tmp_path / "a.safetensors").write_bytes(b"not at all")
    with pytest.raises(ValueError, match="is no file of safetensors"):
        load_weights(model, tmp_path / "a.safetensors")
