"""What is taken, guessed and refused before anything is examined."""

from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from vademecum.examine import examine
from vademecum.examine._study import Study
from vademecum.examine._task import aim_of

X, Y = torch.randn(12, 4), torch.arange(12) % 3
MODEL = nn.Linear(4, 3)


class Answer(NamedTuple):
    logits: Tensor
    other: Tensor


class Gives(nn.Module):
    """A network that gives what a function makes of its output."""

    def __init__(self, make, d=4, k=3):
        super().__init__()
        self.layer, self.make = nn.Linear(d, k), make

    def forward(self, x):
        return self.make(self.layer(x))


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(9, 5), nn.Linear(5, 9)

    def forward(self, input_ids, attention_mask=None):
        return self.head(self.table(input_ids))


IDS, IMAGES = torch.randint(9, (6, 7)), torch.rand(3, 2, 4, 4)
TASKS = {
    "classes": (MODEL, X, Y, "classification", 3),
    "one score": (nn.Linear(4, 1), X, Y % 2, "classification", 2),
    "a flat score": (Gives(lambda z: z[:, 0]), X, Y % 2, "classification", 2),
    "numbers": (MODEL, X, torch.randn(12, 3), "regression", None),
    "logits": (Gives(lambda z: Answer(z, z)), X, Y, "classification", 3),
    "positions": (Tokens(), IDS, IDS, "sequence", 9),
    "next tokens": (Tokens(), {"input_ids": IDS}, None, "sequence", 9),
    "images": (nn.Conv2d(2, 5, 1), IMAGES, torch.zeros(3, 4, 4).long(), "sequence", 5),
    "images, classes last": (Gives(lambda z: z, 2, 5), torch.rand(3, 4, 6, 2),
                             torch.full((3, 4, 6), 4), "sequence", 5),
    "signals": (nn.Conv1d(2, 7, 1), torch.rand(3, 2, 4), torch.full((3, 4), 6), "sequence", 7),
    "densities": (Gives(lambda z: -z.square().sum(1)), X, None, "density", None),
    "nothing": (MODEL, X, None, None, None),
}  # fmt: skip


@pytest.mark.parametrize(("model", "x", "y", "task", "classes"), TASKS.values(), ids=list(TASKS))
def test_tasks_are_guessed(model, x, y, task, classes):
    study = Study(model, x, y)
    assert (study.aim.task, study.aim.classes) == (task, classes)
    assert study.aim.why
    if task in ("classification", "sequence"):
        z, labels = study.scores()
        assert z.shape == (len(labels), classes)
        assert study.aim.loss is not None
        loss = float(study.aim.loss(study.outputs(), study.data.y))
        assert loss == pytest.approx(float(nn.functional.cross_entropy(z, labels)), rel=1e-5)


def test_next_tokens_are_targets():
    study = Study(Tokens(), {"input_ids": IDS, "attention_mask": torch.ones(6, 7)})
    assert study.data.y[:, :-1].equal(IDS[:, 1:])
    assert (study.data.y[:, -1] == -100).all()
    assert len(study.scores()[1]) == 6 * 6


def test_outputs_that_are_several():
    model = Gives(lambda z: (z, 2 * z))
    study = Study(model, X, Y)
    assert study.counted.startswith("[0] of its output")
    assert study.outputs().equal(model.layer(X))
    model = Gives(lambda z: {"a": z, "b": 2 * z})
    study = Study(model, X, Y, output="b")
    assert torch.allclose(study.outputs(), 2 * model.layer(X))


def test_networks_that_take_all_examples_or_none():
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.register_buffer("graph", torch.eye(12))

        def forward(self, x):
            return self.graph @ self.layer(x)

    study = Study(Mixing(), X, Y)
    assert study.n is None
    assert study.outputs().shape == (12, 3)
    section = examine(Mixing(), X, Y, sections=["curvature"])["curvature"]
    assert section.status == "measured", section.traceback


def test_compiled_networks_are_unwrapped():
    compiled: Any = torch.compile(MODEL, backend="eager")
    assert Study(compiled, X, Y).model is MODEL


def test_loaders_bring_their_first_examples():
    loader = DataLoader(TensorDataset(X, Y), batch_size=5)
    study = Study(MODEL, loader)
    assert study.n == 12
    assert study.data.x.equal(X)
    assert study.data.y.equal(Y)
    assert study.data.of == "the first 12 of a loader"
    fresh = Study(MODEL, X, Y, test=loader).test
    assert fresh is not None
    assert fresh.n == 12


def test_the_order_of_examples_is_the_seeds():
    one, same, other = (Study(MODEL, X, Y, seed=s).take(5)[0] for s in (1, 1, 2))
    assert one.equal(same)
    assert not one.equal(other)
    assert Study(MODEL, X, Y, seed=1).take(3)[0].equal(one[:3])


def test_outputs_that_are_not_finite_give_no_numbers():
    """Also where the first look does not see them."""
    model = Gives(lambda z: torch.where(torch.arange(len(z))[:, None] == 9, NAN, z))
    given = {"example 9": (X, Y, None), "fresh example 9": (X[:9], Y[:9], (X, Y))}
    for which, (x, y, test) in given.items():
        dossier = examine(model, x, y, test=test, sections=["generalisation", "calibration"])
        for section in dossier.sections:
            assert (section.status, section.measurements) == ("failed", ()), section
            assert f"must be finite, and those of {which} are not" in section.reason


EMPTY = DataLoader(TensorDataset(X[:0]))
NAN, INF = torch.tensor(float("nan")), torch.tensor(float("inf"))
REFUSED = {
    "no module": ((lambda x: x, X, Y), {}, "model must be an nn.Module, got function"),
    "no data": ((MODEL, None), {}, "x must hold examples, got None"),
    "empty": ((MODEL, X[:0], Y[:0]), {}, "x must not be empty"),
    "an empty loader": ((MODEL, EMPTY), {}, "x must hold examples, got a DataLoader"),
    "one example": ((MODEL, X[:1], Y[:1]), {}, "x must hold at least 2 examples, got 1"),
    "no tensors": ((MODEL, "text"), {}, "x must hold tensors, got str"),
    "labels too large": ((MODEL, X, Y + 1), {}, "y must be classes between 0 and 2, got 3"),
    "labels below zero": ((MODEL, X, Y - 1), {}, "y must be classes between 0 and 2, got -1"),
    "fresh labels": ((MODEL, X, Y), {"test": (X, Y + 5)}, "targets of test must be classes"),
    "fewer labels": ((MODEL, X, Y[:5]), {}, "targets of x must be one for each of 12 examples"),
    "NaN inputs": ((MODEL, X + NAN, Y), {}, "x must be finite, got nan"),
    "NaN among fresh": ((MODEL, X, Y), {"test": (X + NAN, Y)}, "test must be finite"),
    "NaN targets": ((MODEL, X, X[:, :3] + NAN), {}, "targets of x must be finite"),
    "NaN outputs": ((Gives(lambda z: z * NAN), X, Y), {}, "outputs of model must be finite"),
    "infinite outputs": ((Gives(lambda z: z + INF), X, Y), {}, "outputs of model must be finite"),
    "a loss of rows": ((MODEL, X, Y), {"loss": nn.CrossEntropyLoss(reduction="none")},
                       r"loss must give one number, got \(4,\)"),
    "a loss of nothing": ((MODEL, X, Y), {"loss": lambda z, y: 3.0}, "one number, got float"),
    "a loss that fails": ((MODEL, X, Y), {"loss": nn.BCELoss()}, "loss must take outputs"),
    "other inputs": ((MODEL, torch.randn(5, 7), None), {}, "model must take x, .*: mat1"),
    "budget": ((MODEL, X, Y), {"budget": 0}, "budget must be > 0, got 0"),
    "no budget": ((MODEL, X, Y), {"budget": -1.0}, "budget must be > 0, got -1"),
    "memory": ((MODEL, X, Y), {"memory": 0}, "memory must be >= 1, got 0"),
    "task": ((MODEL, X, Y), {"task": "chess"}, "task must be one of 'classification'"),
    "sections": ((MODEL, X, Y), {"sections": ["soul"]}, "among anatomy, .* got 'soul'"),
    "no sections": ((MODEL, X, Y), {"sections": []}, "sections must name at least one"),
    "another device": ((MODEL, X.to("meta"), Y), {}, "x must be on cpu as model is, got meta"),
    "lazy": ((nn.LazyLinear(3), X, Y), {}, "model must be initialised"),
}  # fmt: skip


@pytest.mark.parametrize(("args", "options", "complaint"), REFUSED.values(), ids=list(REFUSED))
def test_bad_input_is_named(args, options, complaint, unchecked):
    with pytest.raises(ValueError, match=complaint):
        examine(*args, **{"sections": ["anatomy"], **options})


def test_mappings_of_any_kind():
    batch = OrderedDict(input_ids=IDS, attention_mask=torch.ones(6, 7))
    assert examine(Tokens(), batch, sections=["anatomy"])["anatomy"].parameters == 45 + 54


@pytest.mark.parametrize("which", ["data", "test"])
def test_examples_that_a_network_writes_into_are_given_back(which):
    x, y = torch.zeros(6, 2), torch.arange(6) % 2
    study = Study(nn.Linear(2, 2), x, y, test=(x, y))
    assert study.whole()
    getattr(study, which).x.add_(1)
    assert not study.whole()
    assert study.whole()
    assert not getattr(study, which).x.any()
    assert not x.any()


@pytest.mark.parametrize(("top", "task"), [(6, "sequence"), (7, None)])
def test_scores_are_for_the_tokens_that_go_in_only_if_there_is_one_for_each(top, task):
    ids = torch.tensor([[0, 1, top], [3, 2, 1]])
    assert aim_of(torch.zeros(2, 3, 7), ids, None, task=None, loss=None).task == task


@pytest.mark.parametrize(("length", "task"), [(1, None), (2, "sequence")])
def test_two_tokens_are_the_shortest_sequence(length, task):
    ids = torch.ones(3, length, dtype=torch.long)
    found = aim_of(torch.zeros(3, length, 4), ids, None, task=None, loss=None)
    assert found.task == task
    if task is not None:
        assert found.y.tolist() == [[1, -100]] * 3


class Decided(nn.Linear):
    """It gives classes in place of scores for them."""

    def forward(self, input):
        return super().forward(input).argmax(1)


@pytest.mark.parametrize("k", [2, 3])
def test_answers_are_no_scores(k):
    """Of two classes 0 and 1 would go for scores of the second one."""
    sections = ["anatomy", "generalisation", "calibration"]
    found = examine(Decided(4, k), torch.randn(30, 4), torch.arange(30) % k, sections=sections)
    assert [section.status for section in found.sections] == ["measured"] + 2 * ["not applicable"]
    assert "its outputs are int64, which are no scores" in found["generalisation"].reason
