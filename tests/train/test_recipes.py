"""Recipes: each one trains and is judged, and what it trains on is what it says."""

import inspect
import json
import math
import re
from dataclasses import fields, is_dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.test_imports import run_python
from vademecum.cli.recipe_flags import flags_of
from vademecum.cli.train import SCORES, training_words
from vademecum.cli.training_options import Options
from vademecum.generalization import StochasticNetwork, pac_bayes_bound
from vademecum.randomness import own_randomness
from vademecum.train import RECIPES, Task, example_noise, fit
from vademecum.train.recipes import _graph_parts, _image_losses, _text_losses, _texts
from vademecum.train.recipes._image_models import image_network
from vademecum.train.recipes._optimizers import OPTIMIZERS, make_optimizer
from vademecum.train.recipes._shifts import shifted
from vademecum.train.recipes.images import ImageModel

QUICK = {
    "distillation": {"teacher": ImageModel("mlp", width=8), "teacher_steps": 2},
    "pac_bayes": {"prior_steps": 2, "model": ImageModel("mlp", width=4)},
    "pointnet": {"clouds": 20, "points": 8, "width": 16},
    "seq2seq": {"length": 2, "width": 8},
    "diffusion": {"width": 8, "noise_steps": 3},
    "skipgram": {"data": "stdlib_text", "vocabulary": 50, "window": 1},
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_trains_and_is_judged(name, tmp_path):
    knobs = QUICK.get(name, {})
    if "data" in inspect.signature(RECIPES[name]).parameters and name in (
        "gpt",
        "bert",
        "skipgram",
    ):
        path = tmp_path / "text.txt"
        path.write_text("the quick brown fox jumps over the lazy dog. " * 60)
        knobs = knobs | {"data": str(path)}
    with own_randomness(0):
        task = RECIPES[name](**knobs)
    assert isinstance(task, Task)
    before = {key: value.clone() for key, value in task.objective.state_dict().items()}
    settings: dict[str, Any] = task.settings | {"steps": 2, "evaluate_every": 2}
    lr, decay = settings.pop("lr"), settings.pop("weight_decay", None)
    maker = make_optimizer(settings.pop("optimizer"), task.objective, lr=lr, weight_decay=decay)
    run = fit(
        task.objective, task.data, optimizer=maker, evaluate=task.evaluate, score=task.score,
        maximize=task.maximize, **settings,
    )  # fmt: skip
    assert math.isfinite(run.scores[task.score])
    after = task.objective.state_dict()
    assert any(not torch.equal(before[key], after[key]) for key in before)
    assert task.score in repr(task)


def test_flags_are_plain_and_their_own():
    common = {flag.name for flag in flags_of(Options)}
    for recipe in RECIPES.values():
        flags = flags_of(recipe)
        assert not common & {flag.name for flag in flags}
        for flag in flags:
            assert flag.kind in (int, float, str) or get_origin(flag.kind) is Literal
            assert flag.text
    assert all(flag.text for flag in flags_of(Options))
    optimizers = next(f for f in flags_of(Options) if f.name == "optimizer")
    assert get_args(optimizers.kind) == tuple(OPTIMIZERS)


def test_recipes_are_read_without_torch():
    code = "import sys\nfrom vademecum.train import RECIPES\nprint(len(RECIPES), *sys.modules)"
    count, *modules = run_python(code).split()
    assert int(count) == len(RECIPES)
    assert "torch" not in modules


def test_every_recipe_has_a_measured_score_that_meets_its_bar():
    rows = json.loads(SCORES.read_text())["rows"]
    assert {row["command"].split()[0] for row in rows} == set(RECIPES)
    networks = get_args(next(f.kind for f in flags_of(ImageModel) if f.name == "name"))
    shown = " ".join(row["command"] for row in rows)
    assert all(f"--model.name {name}" in shown for name in networks if name != "lenet5")
    for row in rows:
        assert training_words(row["command"].split())
        gap = row["mean"] - row["bar"] if row["maximize"] else row["bar"] - row["mean"]
        assert gap > row["spread"], row
        assert row["seconds"] <= 30


@pytest.mark.parametrize("name", get_args(ImageModel.__dataclass_fields__["name"].type))
@pytest.mark.parametrize(("channels", "side"), [(1, 8), (1, 28), (3, 32)])
def test_image_networks_take_images_of_all_sets(name, channels, side):
    if name == "densenet" and side == 28:
        pytest.skip("the same layers as for 32")
    net = image_network(name, None, None, outputs=7, channels=channels, side=side)
    out = net(torch.rand(2, channels, side, side))
    assert out.shape == (2, 7)
    out.square().sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_few_labels_are_spread_over_classes():
    images = _image_losses.pictures("digits", 25)
    counts = torch.bincount(images.train[1], minlength=10)
    assert counts.sum() == 25
    assert set(counts.tolist()) == {2, 3}


def test_shifts_move_each_image_by_its_own_amount():
    x = torch.rand(6, 2, 5, 4)
    found, y = shifted((x, torch.arange(6)), example_noise(0, 0, torch.arange(6)), most=2)
    by = example_noise(0, 0, torch.arange(6)).integers(5, 2) - 2
    assert torch.equal(y, torch.arange(6))
    for image, moved, (down, right) in zip(x, found, by.tolist(), strict=True):
        wide = F.pad(image, (2, 2, 2, 2))
        expected = wide[:, 2 - down : 7 - down, 2 - right : 6 - right]
        assert torch.equal(moved, expected)


@pytest.mark.parametrize("task", ["reverse", "add"])
def test_problems_have_right_answers_and_differ(task):
    x, y = _texts.problems(task, 300, 3)
    signs = " 0123456789+"
    asked = ["".join(signs[i] for i in row).strip() for row in x.tolist()]
    answers = ["".join(signs[i] for i in row).strip() for row in y.tolist()]
    assert len(set(asked)) == len(asked)
    for question, answer in zip(asked, answers, strict=True):
        if task == "reverse":
            assert answer == question[::-1]
        else:
            assert int(answer) == sum(map(int, question.split("+")))


def test_prose_windows_are_half_prose():
    x, y = _texts.prose_windows(40, 32, split="train")
    other, _ = _texts.prose_windows(40, 32, split="test")
    assert x.shape == (40, 32)
    assert y.sum() == 20
    texts = [bytes(row).decode("latin1") for row in x.tolist()]
    assert not set(texts) & {bytes(row).decode("latin1") for row in other.tolist()}
    signs = [sum(map(text.count, "()[]=_")) for text in texts]
    code = sum(n for n, label in zip(signs, y, strict=True) if not label)
    assert code > 3 * sum(n for n, label in zip(signs, y, strict=True) if label)


def test_word_pairs_are_neighbours():
    text = _texts.Halves(b"a red fox and the red dog saw the red fox", b"the red fox")
    found = _texts.word_pairs(text, vocabulary=4, window=1)
    assert found.words[0] == "red"
    assert found.counts.tolist()[0] == 3
    kept = [w for w in re.findall("[a-z]{2,}", text.train.decode()) if w in found.words]
    pairs = set(pairwise(kept))
    expected = pairs | {(b, a) for a, b in pairs}
    assert {(found.words[a], found.words[b]) for a, b in found.train.tolist()} == expected


def test_prose_windows_are_judged_by_the_last_tenth_of_the_text(monkeypatch):
    rows = [f"{'#' if i % 2 else 'x'} {i:05} and so on".ljust(31) + "\n" for i in range(200)]
    monkeypatch.setattr(_texts, "load", lambda *_, split: SimpleNamespace(text="".join(rows)))
    for split, places in (("train", range(180)), ("test", range(180, 200))):
        x, y = _texts.prose_windows(20, 32, split=split)
        found = [int(bytes(row.tolist()).split()[1]) for row in x]
        assert len(set(found)) == 20
        assert (min(found), max(found)) == (places[0], places[-1])
        assert y.tolist() == [i % 2 for i in found]


def test_noise_words_follow_their_counts():
    model = _text_losses.Words(torch.tensor([16, 1, 0]), 4, power=0.5)
    with own_randomness(0):
        drawn = torch.bincount(model.draw(1000, 10).flatten(), minlength=3)
    assert drawn[2] == 0
    assert abs(drawn[0] / 10_000 - 0.8) < 5 * (0.16 / 10_000) ** 0.5


def test_certified_loss_is_the_bound():
    with own_randomness(0):
        network = StochasticNetwork(nn.Linear(3, 2), prior="init", prior_std=1e-9, std=1e-9)
        x, y = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])
        found = _image_losses.certified_loss(network, (x, y), n=50, delta=0.1)
    risk = F.cross_entropy(network.model(x), y) / math.log(1e5)
    expected = pac_bayes_bound(risk.detach(), 0.0, 50, delta=0.1, kind="quadratic")
    assert found.item() == pytest.approx(float(expected), rel=1e-5)


def test_certificates_of_a_run_share_one_probability_to_fail(monkeypatch, tmp_path):
    """The best of them counts; a run that goes on must not begin to count anew."""
    spent, known = [], _image_losses.pac_bayes_certificate

    def watched(*args, delta_mc, **options):
        spent.append(delta_mc)
        return known(*args, delta_mc=delta_mc, **options)

    monkeypatch.setattr(_image_losses, "pac_bayes_certificate", watched)

    def trained(**options: Any) -> None:
        task = RECIPES["pac_bayes"](**QUICK["pac_bayes"], delta_mc=0.06)
        fit(
            task.objective,
            task.data,
            optimizer=torch.optim.Adam,
            batch_size=128,
            evaluate=task.evaluate,
            evaluate_every=2,
            score=task.score,
            folder=tmp_path,
            **options,
        )

    trained(steps=4)
    trained(steps=5, resume=True, change=["steps"])
    assert spent == pytest.approx([0.06 / 12, 0.06 / 30, 0.06 / 42])
    assert sum(0.06 / ((t + 1) * (t + 2)) for t in range(10_000)) <= 0.06


def test_clouds_lie_on_their_surfaces():
    x, y = _graph_parts.clouds(50, 400, noise=0.0, seed=0)
    assert torch.bincount(y).tolist() == [10] * 5
    sphere, torus = x[y == 0], x[y == 4]
    assert (sphere.norm(dim=2) > 0.79).all()
    assert (sphere.norm(dim=2) < 1.21).all()
    assert (torus.norm(dim=2) > 0.47).all()  # a hole, which no other surface has
    assert (torus.norm(dim=2) < 1.69).all()


def test_dataclasses_of_recipes_are_documented():
    for recipe in RECIPES.values():
        for parameter in inspect.signature(recipe).parameters.values():
            if is_dataclass(parameter.default):
                text = inspect.getdoc(type(parameter.default)) or ""
                assert all(f"    {f.name}: " in text for f in fields(parameter.default))
