"""However a batch is split, its gradient is that of all its terms with equal weights."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.train.fitted import fitted, points, sgd, weights
from vademecum.train import Supervised
from vademecum.train._losses import share
from vademecum.train._order import Part


class Ragged(nn.Module):
    """Rows of different lengths, marked by -1, and a loss over all their entries."""

    def __init__(self, pair: str):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.model = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)).double()
        self.pair = pair

    def losses(self, batch: Tensor) -> dict[str, Any]:
        kept = batch[batch >= 0][:, None]
        terms = (self.model(kept) - 2 * kept).square()
        if self.pair == "mean":
            return {"model": terms.mean()}
        count = torch.tensor(len(terms)) if self.pair == "tensor" else len(terms)
        return {"model": (terms.sum(), count)}


def rows(n: int = 26, width: int = 9) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, width + 1, (n, 1), generator=generator)
    values = torch.rand(n, width, generator=generator, dtype=torch.float64)
    return torch.where(torch.arange(width) < lengths, values, -1.0)


@pytest.mark.parametrize("pair", ["number", "tensor"])
@pytest.mark.parametrize("accumulate", [2, 3, 4])
def test_ragged_rows(pair, accumulate):
    """Four steps of 8 rows and one of 2: micro-batches of 2, of 3 and 2, or of 1 and none."""
    options = {"data": rows(), "optimizer": sgd, "epochs": 3}
    whole = fitted(Ragged("mean"), **options)
    split = fitted(Ragged(pair), accumulate=accumulate, **options)
    assert (weights(whole) - weights(split)).abs().max() <= 1e-12
    assert (whole.history["loss"] - split.history["loss"]).abs().max() <= 1e-12
    assert (whole.history["norm"] - split.history["norm"]).abs().max() <= 1e-12
    wrong = fitted(Ragged("mean"), accumulate=accumulate, **options)  # means of means
    assert (weights(whole) - weights(wrong)).abs().max() > 1e-6


@pytest.mark.parametrize("accumulate", [2, 3, 5])
def test_means_over_examples_in_unequal_micro_batches(accumulate):
    x, y = points(27)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(3, 2).double()
    start = {name: t.clone() for name, t in model.state_dict().items()}
    options = {"data": (x.double(), y), "optimizer": sgd, "epochs": 2, "clip": 0.3}
    whole = weights(fitted(Supervised(model), **options))
    model.load_state_dict(start)
    split = weights(fitted(Supervised(model), accumulate=accumulate, **options))
    assert (whole - split).abs().max() <= 1e-12


def test_a_step_is_that_of_the_plain_loop():
    x, y = points(16)
    model = nn.Linear(3, 2)
    other = nn.Linear(3, 2)
    other.load_state_dict(model.state_dict())
    fitted(Supervised(model), (x, y), optimizer=sgd, batch_size=16, steps=3)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    from vademecum.train._order import Order

    for step in range(3):
        (part,) = Order(16, 16, seed=0).parts(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(other(x[part.examples]), y[part.examples]).backward()
        optimizer.step()
    assert all(a.equal(b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_shares_of_lent_examples_are_zero():
    part = Part(0, 0, torch.arange(1), whole=3, last=True, counts=False)
    value, count = share("model", (torch.tensor(5.0), 7), part)
    assert (float(value), count) == (0.0, 0)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (torch.ones(3), r"'model' must be one number .* got shape \(3,\)"),
        (3.0, "'model' must be one number .* got 3.0"),
        ((torch.ones(2), 4), r"pair \(sum, count\), got shape \(2,\)"),
        (torch.tensor(3), "'model' must be one number"),
    ],
)
def test_what_is_no_loss(loss, message):
    class Odd(Ragged):
        def losses(self, batch):
            return {"model": loss}

    with pytest.raises(ValueError, match=message):
        fitted(Odd("mean"), rows())


def test_a_step_without_terms_stops():
    class Empty(Ragged):
        def losses(self, batch):
            loss, _ = super().losses(batch)["model"]
            return {"model": (0 * loss, 0)}

    for accumulate in (1, 2):
        with pytest.raises(ValueError, match="the loss of 'model' must be finite, got nan"):
            fitted(Empty("number"), rows(), accumulate=accumulate)
