"""Bagging against networks that are trained alone, scikit-learn's checks, and sums by hand."""

import re
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn
from torch.nn import functional as F

from vademecum.models import SlowPathWarning, StackedMembers, mlp
from vademecum.randomness import own_randomness
from vademecum.regularization import Bagging, ensemble_average

SMALL: dict[str, Any] = {"members": 2, "epochs": 4, "batch_size": 64, "learning_rate": 0.1}


@parametrize_with_checks([Bagging(**SMALL), Bagging(task="regression", **SMALL)])
def test_contract(estimator, check):
    check(estimator)


def data(n=40):
    x = torch.randn(n, 3, dtype=torch.float64)
    return x, (x[:, 0] * x[:, 1] > 0).long()


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_members_are_those_that_are_trained_alone(task):
    x, y = data()
    y = y if task == "classification" else torch.stack([x.sin().sum(1), x[:, 0]], 1)
    model = Bagging(lambda d, k: mlp([d, 5, k], nn.Tanh), task=task, members=4, epochs=6,
                    batch_size=13, weight_decay=0.1, random_state=3).fit(x, y)  # fmt: skip
    with own_randomness(np.random.RandomState(3).randint(2**31 - 1)):
        nets = [mlp([3, 5, 2], nn.Tanh).double() for _ in range(4)]
        rows = torch.randint(40, (4, 40))
        orders = [torch.rand(4, 40).argsort(1) for _ in range(6)]
    assert rows.equal(model.estimators_samples_)
    loss = F.cross_entropy if task == "classification" else F.mse_loss
    for k, net in enumerate(nets):
        steps = torch.optim.AdamW(net.parameters(), 0.01, weight_decay=0.1)
        for order in orders:
            for some in rows[k][order[k]].tensor_split(3):
                steps.zero_grad()
                loss(net(x[some]), y[some]).backward()
                steps.step()
        for p, q in zip(net.parameters(), model.estimators_[k].parameters(), strict=True):
            torch.testing.assert_close(p, q)
    z = torch.stack([net(x) for net in nets]).detach()
    z = z.softmax(2) if task == "classification" else z
    torch.testing.assert_close(model.predict_members(x), z)
    mean = model.predict_proba(x) if task == "classification" else model.predict(x)
    torch.testing.assert_close(mean, z.mean(0))
    out = torch.stack([z[[i not in row for row in rows.tolist()], i].mean(0) for i in range(40)])
    torch.testing.assert_close(model.oob_prediction_, out, equal_nan=True)


def test_scores_are_those_by_hand():
    x, y = data(60)
    labels = np.array(["no", "yes"])[y.numpy()]
    model = Bagging(members=30, epochs=40, random_state=0).fit(x.numpy(), labels)
    right = model.predict(x.numpy()) == labels
    assert model.score(x.numpy(), labels) == right.mean() > 0.9
    oob = np.array(["no", "yes"])[model.oob_prediction_.argmax(1)] == labels
    assert model.oob_score_ == oob.mean()
    assert oob.mean() < right.mean()
    found = ensemble_average(torch.from_numpy(model.predict_members(x.numpy())), y)
    assert found.error is not None
    assert found.mean_error is not None
    assert (found.error <= found.mean_error).all()
    again = Bagging(**model.get_params()).fit(x.numpy(), labels)
    np.testing.assert_array_equal(again.predict_proba(x.numpy()), model.predict_proba(x.numpy()))


def test_regression_scores():
    x, _ = data(60)
    y = x[:, 0] + 0.1 * torch.randn(60, dtype=torch.float64)
    model = Bagging(task="regression", members=20, epochs=60, random_state=0).fit(x, y)
    assert model.predict(x).shape == (60,)
    rest = (model.predict(x) - y).square().sum() / (y - y.mean()).square().sum()
    assert model.score(x, y) == pytest.approx(1 - float(rest))
    assert 0.5 < model.oob_score_ < model.score(x, y)
    assert not hasattr(model, "predict_proba")


def test_targets_that_are_all_the_same():
    x, _ = data(20)
    model = Bagging(task="regression", members=3, epochs=1).fit(x, torch.ones(20).double())
    assert model.score(x, torch.ones(20).double()) == 0
    assert model.oob_score_ == 0
    assert model.score(x, model.predict(x)) == 1
    both = torch.stack([x[:, 0], torch.ones(20).double()], 1)
    found = Bagging(task="regression", members=3, epochs=1).fit(x, both)
    assert found.score(x, both) == pytest.approx(r2_score(both, found.predict(x)))


def with_statistics(d, k):
    return nn.Sequential(nn.Linear(d, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, k))


def test_batch_normalisation_is_trained_one_by_one_and_said():
    x, y = data()
    model = Bagging(with_statistics, members=2, epochs=3, random_state=0)
    with pytest.warns(SlowPathWarning, match=r"statistics of BatchNorm1d '1'"):
        model.fit(x, y)
    norms = [net.get_submodule("1") for net in model.estimators_]
    counts = [int(norm.num_batches_tracked) for norm in norms]  # pyright: ignore
    assert counts == [3, 3]
    assert not torch.equal(norms[0].running_mean, norms[1].running_mean)  # pyright: ignore
    torch.testing.assert_close(model.predict_members(x)[1], model.estimators_[1](x).softmax(1))


def test_dropout_of_members_differs():
    x, y = data()
    make = lambda d, k: nn.Sequential(nn.Linear(d, 8), nn.Dropout(), nn.Linear(8, k))  # noqa: E731
    model = Bagging(make, members=2, epochs=2, random_state=0).fit(x, y)
    assert torch.equal(model.predict_proba(x), model.predict_proba(x))
    net = make(3, 2).double()
    stack = StackedMembers([net, deepcopy(net)], outputs=2)
    one, other = stack.losses(x.expand(2, -1, -1), y.expand(2, -1), F.cross_entropy)
    assert one != other


X, Y = torch.zeros(6, 2), torch.arange(6) % 2
ODD = iter(range(100))
BAD = [
    ({"members": 0}, "members must be >= 1, got 0"),
    ({"task": "ranking"}, "task must be one of 'classification', 'regression', got 'ranking'"),
    ({"learning_rate": 0.0}, "learning_rate must be > 0, got 0.0"),
    ({"weight_decay": -1.0}, "weight_decay must be >= 0, got -1.0"),
    ({"module": lambda d, k: "net"}, "module must make an nn.Module, got str"),
    ({"module": lambda d, k: mlp([d, 2 + next(ODD), k])}, "module must make networks of one kind"),
    ({"module": lambda d, k: nn.Identity()}, "module must make networks with parameters"),
    ({"module": lambda d, k: nn.Linear(d, 3)},
     "networks with outputs of shape (6, 2), got (6, 3)"),
    ({"module": lambda d, k: nn.Linear(d, 1)},
     "networks with outputs of shape (6, 2), got (6, 1)"),
    ({"learning_rate": 1e30, "epochs": 5}, "learning_rate must be smaller: the loss of member"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("knobs", "message"), BAD, ids=[m for _, m in BAD])
def test_bagging_refuses(knobs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Bagging(**knobs).fit(X, Y)
