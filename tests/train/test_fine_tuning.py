"""Pre-train, then fine-tune: what is taken over, what rests, and who learns how fast."""

from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from vademecum.errors import UsageError
from vademecum.optimization import Muon, matrix_parameters
from vademecum.randomness import own_randomness
from vademecum.train import Supervised, fit, save_checkpoint
from vademecum.train.recipes._optimizers import OPTIMIZERS, Pace, make_optimizer
from vademecum.train.recipes._transfer import head_of, levels_of, paces, take_over

X, Y = torch.randn(32, 4), torch.arange(32) % 3


def made(seed: int, outputs: int = 3) -> Supervised:
    with own_randomness(seed):
        net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Linear(5, outputs))
        return Supervised(net)


def weights(objective: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in objective.named_parameters()}


def trained(objective, steps, *, name="adam", folder=None, resume=False, **options):
    maker = make_optimizer(name, objective, lr=0.05, paces=paces(objective, **options))
    change = ["steps"] if resume else []
    fit(objective, (X, Y), optimizer=maker, batch_size=8, steps=steps, folder=folder,
        resume=resume, change=change)  # fmt: skip
    return weights(objective)


def moved(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


def test_the_head_is_new_and_the_rest_is_taken_over(tmp_path):
    old, new = made(0, outputs=7), made(1)
    save_file(dict(old.state_dict()), tmp_path / "model.safetensors")
    before = weights(new)
    left = take_over(new, tmp_path, new_head=True)
    head = {"model.3.weight", "model.3.bias"}
    assert set(left) == head == set(head_of(new))
    for name, p in new.named_parameters():
        assert torch.equal(p, before[name] if name in head else old.get_parameter(name))


def test_what_does_not_fit_is_named(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file(dict(made(0, outputs=7).state_dict()), path)
    new = made(1)
    before = weights(new)
    with pytest.raises(UsageError, match=r"model.3.weight has the shape \(7, 5\), and here \(3, 5"):
        take_over(new, path, new_head=False)
    save_file({"model.0.weight": torch.zeros(6, 4)}, path)
    with pytest.raises(UsageError, match=r"it has no model.0.bias"):
        take_over(new, path, new_head=True)
    path.write_bytes(b"nothing")
    with pytest.raises(UsageError, match="no file of safetensors"):
        take_over(new, path, new_head=True)
    with pytest.raises(UsageError, match=r"must be a run's folder or a file .*nowhere"):
        take_over(new, tmp_path / "nowhere", new_head=True)
    assert not moved(before, weights(new))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_frozen_parameters_keep_every_bit(name):
    objective = made(0)
    before = weights(objective)
    after = trained(objective, 5, name=name, freeze=["model.0.*"])
    assert moved(before, after) == {f"model.{i}.{k}" for i in (2, 3) for k in ("weight", "bias")}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_is_frozen_for_a_while_learns_later(name):
    objective = made(0)
    before = weights(objective)
    options: Any = {"name": name, "freeze": ["model.0.*"], "unfreeze_after": 3}
    first = trained(objective, 3, **options)
    assert "model.0.weight" not in moved(before, first)
    later = trained(made(0), 4, **options)
    assert "model.0.weight" in moved(before, later)


def test_a_probe_comes_first():
    before = weights(made(0))
    options: Any = {"probe_steps": 3}
    assert moved(before, trained(made(0), 3, **options)) == {"model.3.weight", "model.3.bias"}
    assert moved(before, trained(made(0), 4, **options)) == set(before)


@pytest.mark.parametrize("name", ["adam", "muon"])
@pytest.mark.parametrize("cut", [2, 5])
def test_resuming_while_frozen_ends_with_the_same_bits(tmp_path, name, cut):
    options: Any = {"name": name, "freeze": ["model.0.*"], "unfreeze_after": 3, "layer_decay": 0.5}
    whole = trained(made(0), 7, **options)
    trained(made(0), cut, folder=tmp_path, **options)
    again = trained(made(1), 7, folder=tmp_path, resume=True, **options)
    assert not moved(whole, again)


def test_the_norm_of_a_probe_is_that_of_the_head():
    maker = make_optimizer("sgd", made(0), lr=0.05)
    alone = made(0)
    for name, p in alone.named_parameters():
        p.requires_grad_(name.startswith("model.3."))
    options: Any = {"batch_size": 8, "steps": 3, "clip": 0.01}
    head = fit(alone, (X, Y), optimizer=maker, **options)
    probed = made(0)
    maker = make_optimizer("sgd", probed, lr=0.05, paces=paces(probed, probe_steps=3))
    probe = fit(probed, (X, Y), optimizer=maker, **options)
    assert head.history["norm"].equal(probe.history["norm"])
    assert not moved(weights(alone), weights(probed))


def test_tied_weights_are_taken_over_from_a_checkpoint(tmp_path):
    def tied(seed: int) -> Supervised:
        objective = made(seed, outputs=5)
        first, second = (objective.model.get_submodule(name) for name in "23")
        first.weight = second.weight = nn.Parameter(torch.randn(5, 5))
        return objective

    old, new = tied(0), tied(1)
    save_checkpoint(tmp_path / "old", old)
    assert take_over(new, tmp_path / "old", new_head=False) == []
    assert not moved(weights(old), weights(new))


def test_a_damaged_best_checkpoint_is_not_taken(tmp_path):
    best = save_checkpoint(tmp_path / "checkpoints" / "best", made(0))
    new = made(1)
    assert take_over(new, tmp_path, new_head=False) == []  # without any other checkpoint
    assert not moved(weights(made(0)), weights(new))
    content = bytearray((best / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (best / "model.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match="has another SHA-256 than its manifest"):
        take_over(new, tmp_path, new_head=False)


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_has_weights_of_its_own_and_learns(tied):
    layers = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
    objective = Supervised(nn.Sequential(*layers))
    layers[2].requires_grad_(False)  # as what pre-training has no use for
    if not tied:
        assert head_of(objective) == ["model.1.weight", "model.1.bias"]
        return
    layers[1].weight = layers[0].weight
    for ask in (head_of, lambda o: paces(o, probe_steps=2)):
        with pytest.raises(UsageError, match=r"got model.1.weight, which model.0.weight is"):
            ask(objective)


def test_what_is_frozen_and_probed_past_waits_for_the_later_of_both():
    found = paces(made(0), freeze=["model.0.*"], unfreeze_after=5, probe_steps=3)
    waits = {name: pace.frozen_for for name, pace in found.items()}
    assert waits == {
        "model.0.weight": 5, "model.0.bias": 5, "model.2.weight": 3, "model.2.bias": 3,
        "model.3.weight": 0, "model.3.bias": 0,
    }  # fmt: skip


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_all_of_it_may_rest_for_a_while(precision):
    objective = made(0)
    before = weights(objective)
    maker = make_optimizer("adam", objective, lr=0.05,
                           paces=paces(objective, freeze=["*"], unfreeze_after=2))  # fmt: skip
    run = fit(objective, (X, Y), optimizer=maker, batch_size=8, steps=4, precision=precision)
    assert run.history["norm"][:2].tolist() == [0, 0]
    assert (run.history["norm"][2:] > 0).all()
    assert moved(before, weights(objective)) == set(before)


def test_layers_of_one_block_that_is_wrapped_are_levels():
    inner = nn.ModuleDict({"one": nn.Linear(1, 1), "two": nn.Linear(1, 1)})
    wrapped = Supervised(nn.Sequential(nn.Flatten(), inner))
    assert list(levels_of(wrapped).values()) == [0, 0, 1, 1]


def test_layers_below_learn_more_slowly():
    found = paces(made(0), layer_decay=0.5)
    assert {name: pace.scale for name, pace in found.items() if name.endswith("bias")} == {
        "model.0.bias": 0.25, "model.2.bias": 0.5, "model.3.bias": 1.0,
    }  # fmt: skip
    maker = make_optimizer("sgd", made(0), lr=0.1, paces=found)
    optimizer = maker(list(made(0).named_parameters()))
    rates = [group["lr"] for group in optimizer.param_groups]
    assert rates == pytest.approx([0.025, 0.05, 0.1])


def test_levels_count_blocks_and_what_is_around_them():
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(3, 2)
            self.blocks = nn.ModuleList([nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)])
            self.head = nn.Linear(2, 3)

    found = levels_of(Deep())
    levels = {name.rpartition(".")[0]: level for name, level in found.items()}
    assert levels == {"embed": 0, "blocks.0": 1, "blocks.2": 2, "head": 3}
    plain = nn.ModuleDict({"one": nn.Linear(1, 1), "two": nn.Linear(1, 1)})
    assert list(levels_of(plain).values()) == [0, 0, 1, 1]


def test_muon_takes_matrices_and_adamw_the_rest():
    ours, theirs = made(0), made(0)
    maker = make_optimizer("muon", ours, lr=0.02, weight_decay=0.1)
    mine = maker(list(ours.named_parameters()))
    matrices, rest = matrix_parameters(theirs)
    others = [
        Muon(matrices, lr=0.02, weight_decay=0.1, scale="rms", nesterov=True),
        torch.optim.AdamW(rest, lr=0.02, weight_decay=0.1),
    ]
    for _ in range(3):
        for objective, optimizers in ((ours, [mine]), (theirs, others)):
            objective.zero_grad()
            objective.losses((X, Y))["model"].backward()
            for optimizer in optimizers:
                optimizer.step()
    assert not moved(weights(ours), weights(theirs))


def test_wrong_wishes_are_refused():
    with pytest.raises(UsageError, match=r"--freeze no\* matches no parameter, such as model.0"):
        paces(made(0), freeze=["no*"])
    with pytest.raises(UsageError, match="must leave something to learn"):
        paces(made(0), freeze=["*"])
    with pytest.raises(UsageError, match="--weight-decay must be left out for sign"):
        make_optimizer("sign", made(0), lr=0.1, weight_decay=0.1)
    with pytest.raises(UsageError, match="need a linear layer"):
        head_of(Supervised(nn.Conv1d(1, 1, 1)))
    assert paces(made(0))["model.0.weight"] == Pace()
