"""Augmentation is a function of the seed, the epoch and the example."""

from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from tests.train.fitted import assert_same, fitted, network, points, weights
from vademecum.train._batches import source_of
from vademecum.train._order import Order
from vademecum.train._setup import micro_batches
from vademecum.train._training import Training


def jitter(batch: Any, noise: Any) -> Any:
    x, y = batch
    turned = torch.where(noise.uniform()[:, None] < 0.5, x, -x)
    return turned + 0.1 * noise.normal(x.shape[1]), y


def test_it_is_the_same_however_a_batch_is_split():
    options: dict[str, Any] = {"augment": jitter, "epochs": 3}
    one = fitted(network(dropout=0.0), points(30), **options)
    other = fitted(network(dropout=0.0), points(30), accumulate=3, **options)
    plain = fitted(network(dropout=0.0), points(30), epochs=3)
    assert (weights(one) - weights(other)).abs().max() < 1e-5
    assert (weights(one) - weights(plain)).abs().max() > 1e-2


def test_an_example_has_the_same_noise_in_every_batch_and_another_in_every_epoch():
    seen: dict[int, dict[tuple[int, int], float]] = {4: {}, 7: {}}
    for size, found in seen.items():
        epoch, count = 0, 0

        def watch(batch: Any, noise: Any, found: Any = found) -> Any:
            nonlocal epoch, count
            for example, u in zip(batch[2].tolist(), noise.uniform().tolist(), strict=True):
                found[epoch, example] = u
            count += len(batch[2])
            epoch = count // 20
            return batch[:2]

        fitted(data=(*points(20), torch.arange(20)), augment=watch, batch_size=size, epochs=2)
    assert seen[4] == seen[7]
    assert len(set(seen[4].values())) == 40


def test_noise_is_where_the_objective_is():
    training = Training(
        nn.Linear(1, 1, device="meta"), {}, GradScaler(enabled=False), None, 0, 1, 1
    )
    seen = []

    def augment(batch: Any, noise: Any) -> Any:
        seen.append(noise.uniform(2).device.type)
        return batch

    source = source_of(torch.zeros(3, 1), device=torch.device("meta"), seed=0, workers=0)
    list(micro_batches(source, Order(3, 3, 0), training, augment))
    assert seen == ["meta"]


def test_global_random_numbers_come_from_the_seed_and_are_given_back():
    class Draws(type(network())):
        def losses(self, batch: Any) -> Any:
            self.drawn = float(torch.rand(()))
            return super().losses(batch)

    drawn = []
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for seed in (0, 1, 0):
        objective = Draws(network().model)
        fitted(objective, steps=1, seed=seed)
        drawn.append(objective.drawn)
    assert drawn[0] == drawn[2] != drawn[1]
    assert torch.get_rng_state().equal(before)


def test_an_objective_in_evaluation_mode_is_trained_in_training_mode():
    assert_same(fitted(network().eval()), fitted())


def test_global_random_numbers_are_left_to_the_model():
    assert_same(fitted(augment=lambda batch, noise: (noise.uniform(3), batch)[1]), fitted())
