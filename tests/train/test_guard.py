"""What is not finite stops training before any weight changes, and is named."""

import json
import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.train.fitted import fitted, network, points, sgd, weights
from vademecum.errors import UsageError
from vademecum.train import Supervised
from vademecum.train._guard import norm_of


class Odd(Supervised):
    """A model whose loss or gradient is not finite from some step on."""

    def __init__(self, what: str, value: float, step: int = 3):
        super().__init__(network().model)
        self.what, self.value, self.when, self.step = what, value, step, -1

    def before_step(self, step: int) -> None:
        self.step = step

    def losses(self, batch: Any) -> dict[str, Any]:
        loss: Tensor = super().losses(batch)["model"]
        if self.step < self.when:
            return {"model": loss}
        if self.what == "loss":
            return {"model": loss * self.value}
        bias: Any = self.model.get_parameter("3.bias")
        bias.register_hook(lambda gradient: gradient * self.value)
        return {"model": loss}


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_the_step_is_not_taken_and_everything_is_named(what, value, tmp_path):
    objective = Odd(what, value)
    with pytest.raises(UsageError) as caught:
        fitted(objective, folder=tmp_path)
    text = str(caught.value)
    if what == "loss":
        assert f"the loss of 'model' must be finite, got {value}" in text
    else:
        assert re.search(r"the gradient of model\.3\.bias must be finite, got -?(nan|inf)", text)
        assert "(the loss of 'model' is 0." in text
    assert "in step 4, for positions 24 to 31 of epoch 0; its weights were not changed" in text
    good = fitted(steps=3)
    own = torch.cat([p.detach().flatten().double() for p in objective.state_dict().values()])
    assert own.equal(weights(good))
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3]


def test_a_loss_that_is_not_finite_stops_although_its_gradient_is():
    class Shifted(Supervised):
        def losses(self, batch):
            return {"model": super().losses(batch)["model"] + math.inf}

    with pytest.raises(UsageError, match="the loss of 'model' must be finite, got inf in step 1"):
        fitted(Shifted(network().model))


def test_players_that_have_moved_already_are_named():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 1), nn.Linear(3, 1)

        def losses(self, batch: Any) -> dict[str, Any]:
            return {"a": self.a(batch[0]).mean(), "b": self.b(batch[0]).mean() * math.nan}

    game = Two()
    before = [x.weight.detach().clone() for x in (game.a, game.b)]
    with pytest.raises(UsageError, match="its weights were not changed, those of 'a' were"):
        fitted(game, optimizer={"a": sgd, "b": sgd})
    assert [x.weight.equal(w) for x, w in zip((game.a, game.b), before, strict=True)] == [
        False, True,
    ]  # fmt: skip


def test_micro_batches_are_named_as_one_place():
    with pytest.raises(UsageError, match="for positions 24 to 31 of epoch 0"):
        fitted(Odd("loss", math.nan), accumulate=3)


def test_a_batch_that_is_not_finite_is_named_as_well():
    x, y = points()
    x[5, 1] = math.nan
    with pytest.raises(UsageError, match=r"where batch\[0\] is not finite either") as caught:
        fitted(data=(x, y), epochs=1)
    from vademecum.train._order import _permutation

    place = _permutation(50, 0, 0).tolist().index(5) // 8 * 8
    assert f"in step {place // 8 + 1}, for positions {place} to {place + 7} of epoch 0" in str(
        caught.value
    )


def test_a_batch_of_complex_numbers_is_named_as_well():
    class Waves(Supervised):
        def losses(self, batch):
            return {"model": self.model(batch["z"].abs()).square().mean()}

    z = torch.full((8, 3), complex(1.0, math.nan))
    with pytest.raises(UsageError, match=r"where batch\['z'\] is not finite either"):
        fitted(Waves(network().model), {"y": torch.ones(8, dtype=torch.bool), "z": z})


def test_gradients_that_are_large_but_finite_are_none_of_its_business():
    class Large(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor([3.0, 4.0]))

        def losses(self, batch):
            return {"model": 1e30 * (self.w * torch.tensor([3.0, 4.0])).sum()}

    objective = Large()
    run = fitted(objective, torch.ones(4), optimizer=sgd, steps=1, clip=0.1)
    assert float(run.history["norm"][0]) == pytest.approx(5e30)  # its square is none
    assert objective.w.tolist() == pytest.approx([3 - 0.006, 4 - 0.008])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e25])
def test_norms(scale):
    gradients = [scale * torch.tensor([3.0, 0.0]), scale * torch.tensor([[4.0], [12.0]])]
    assert norm_of(gradients) == pytest.approx(13 * scale)
    assert norm_of([torch.zeros(2)]) == 0
    assert math.isnan(norm_of([torch.tensor([1.0, math.nan])]))
    assert math.isinf(norm_of([torch.tensor([1.0, -math.inf])]))


def test_a_loss_that_reaches_no_parameter():
    class Apart(Supervised):
        def losses(self, batch):
            return {"model": torch.ones((), requires_grad=True) * 2}

    with pytest.raises(ValueError, match="the loss of 'model' must depend on its parameters"):
        fitted(Apart(network().model))


def test_clipping_is_torch_s():
    x, y = points(16)
    objective, other = network(dropout=0.0), network(dropout=0.0)
    run = fitted(objective, (x, y), optimizer=sgd, batch_size=16, steps=1, clip=0.05)
    nn.functional.cross_entropy(other(x), y).backward()
    norm = nn.utils.clip_grad_norm_(other.parameters(), 0.05)
    for p, q in zip(objective.parameters(), other.parameters(), strict=True):
        assert q.grad is not None
        assert torch.allclose(p, q - 0.1 * q.grad, atol=1e-7)
    assert float(run.history["norm"][0]) == pytest.approx(float(norm), rel=1e-5)
