"""Several players: whose parameters move when, and along which gradient."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.train.fitted import adam, fitted, network, sgd
from vademecum.generative import GAN
from vademecum.train._players import make_optimizers


class Game(nn.Module):
    """Two numbers a and b; a pays (a - b)^2 / 2, and b pays (b + a)^2 / 2."""

    def __init__(self, alternating: bool):
        super().__init__()
        self.a, self.b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.a.weight, 1.0)
        nn.init.constant_(self.b.weight, 2.0)
        self.alternating = alternating

    def losses(self, batch: Tensor) -> dict[str, Any]:
        def one() -> Tensor:
            return (self.a.weight - self.b.weight).square().sum() / 2

        def other() -> Tensor:
            return (self.b.weight + self.a.weight).square().sum() / 2

        return {"a": one, "b": other} if self.alternating else {"a": one(), "b": other()}

    @property
    def place(self) -> tuple[float, float]:
        return self.a.weight.item(), self.b.weight.item()


def sgd_of(players: str) -> dict[str, Any]:
    return dict.fromkeys(players, sgd)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("alternating", [True, False])
def test_functions_are_called_when_the_players_before_have_moved(alternating, accumulate):
    game = Game(alternating)
    players = {
        "a": lambda p: torch.optim.SGD(p, lr=0.5),
        "b": lambda p: torch.optim.SGD(p, lr=0.25),
    }
    run = fitted(
        game, torch.zeros(8, 1), optimizer=players, batch_size=8, steps=2, accumulate=accumulate
    )
    a, b = 1.0, 2.0
    for _ in range(2):
        moved = a - 0.5 * (a - b)
        b -= 0.25 * (b + (moved if alternating else a))
        a = moved
    assert game.place == pytest.approx((a, b), rel=1e-6)
    assert set(run.history) >= {"loss.a", "loss.b", "norm.a", "norm.b", "rate.a", "rate.b"}
    assert run.history["loss.a"][0] == 0.5
    assert run.history["rate.b"].tolist() == [0.25, 0.25]


def test_losses_that_share_a_graph():
    class Shared(Game):
        def losses(self, batch):
            both = self.a.weight * self.b.weight
            return {"a": both.square().sum(), "b": both.sum()}

    game = Shared(False)
    fitted(game, torch.zeros(4, 1), optimizer={"a": sgd, "b": sgd}, batch_size=4, steps=1)
    assert game.place == pytest.approx((1 - 0.1 * 2 * 1 * 4, 2 - 0.1 * 1))


class Adversarial(nn.Module):
    """A GAN whose players take turns."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.gan = GAN(nn.Linear(2, 3), nn.Linear(3, 1), latent_dim=2)

    def players(self) -> dict[str, Any]:
        return {p: getattr(self.gan, p).parameters() for p in ("discriminator", "generator")}

    def losses(self, batch: Tensor) -> dict[str, Any]:
        return {p: lambda p=p: self.gan.losses(batch, players=(p,))[p] for p in self.players()}


def test_a_gan_that_takes_turns_is_the_hand_written_loop():
    data, objective = torch.randn(12, 3), Adversarial()
    by_hand = Adversarial().gan
    fitted(objective, data, optimizer=sgd, batch_size=12, steps=3)
    from vademecum.randomness import own_randomness
    from vademecum.train._order import Order, seed_for

    moves = {p: sgd(getattr(by_hand, p).parameters()) for p in ("discriminator", "generator")}
    with own_randomness(seed_for(0, "global", 0)):
        for step in range(3):
            (part,) = Order(12, 12, seed=0).parts(step)
            for player, optimizer in moves.items():
                optimizer.zero_grad()
                by_hand.losses(data[part.examples], players=(player,))[player].backward()
                optimizer.step()
    for p, q in zip(objective.gan.parameters(), by_hand.parameters(), strict=True):
        assert p.equal(q)


def test_a_gan_as_it_is_makes_simultaneous_steps():
    gan = GAN(nn.Linear(2, 3), nn.Linear(3, 1), latent_dim=2)
    run = fitted(gan, torch.randn(12, 3), optimizer={"discriminator": adam, "generator": adam})
    assert set(run.history) >= {"loss.discriminator", "loss.generator"}


def test_hooks_of_an_objective():
    class Watched(Game):
        def __init__(self):
            super().__init__(True)
            self.calls: list[Any] = []

        def before_step(self, step: int) -> None:
            self.calls.append(step)

        def after_step(self, player: str) -> None:
            self.calls.append(player)

    game = Watched()
    fitted(game, torch.zeros(4, 1), optimizer={"a": sgd, "b": sgd}, batch_size=4, steps=2)
    assert game.calls == [0, "a", "b", 1, "a", "b"]


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("alternating", [True, False])
def test_a_player_that_is_frozen_rests(alternating, precision):
    game = Game(alternating)
    game.b.requires_grad_(False)
    run = fitted(game, torch.zeros(4, 1), optimizer=sgd_of("ab"), steps=2, precision=precision)
    assert game.place == pytest.approx((1.19, 2.0), abs=1e-3)
    sums = [3.1, 3.19] if alternating else [3.0, 3.1]
    losses = [x**2 / 2 for x in sums]
    assert run.history["loss.b"].tolist() == pytest.approx(losses, abs=1e-2)
    assert run.history["norm.b"].tolist() == [0.0, 0.0]


def test_gradients_of_what_nobody_moves_do_not_pile_up():
    objective = network()
    head = torch.optim.SGD(objective.model.get_submodule("3").parameters(), lr=0.1)
    before = objective.model.get_parameter("0.weight").detach().clone()
    fitted(objective, optimizer=head)
    assert objective.model.get_parameter("0.weight").equal(before)
    assert objective.model.get_parameter("0.weight").grad is None


def test_a_loss_without_any_parameter_that_may_move():
    with pytest.raises(ValueError, match="the loss of 'model' must depend on its parameters"):
        fitted(network().requires_grad_(False))


def test_names_reach_the_function_that_makes_an_optimiser():
    names: list[str] = []

    def make(parameters: Any) -> torch.optim.Optimizer:
        names.extend(name for name, _ in parameters)
        return torch.optim.SGD(parameters, lr=0.1)

    made = make_optimizers(Adversarial(), make)
    assert names == [
        f"gan.{p}.{n}" for p in ("discriminator", "generator") for n in ("weight", "bias")
    ]
    assert list(made) == ["discriminator", "generator"]


class Unknown(Game):
    def losses(self, batch):
        return {"c": self.a.weight.sum()}


@pytest.mark.parametrize(
    ("objective", "optimizer", "message"),
    [
        (Game(True), {"a": sgd}, "got a, b"),
        (Game(True), {"a": sgd, "c": sgd}, "which parameters are the player 'c'"),
        (Game(True), sgd, "a loss for each player that has an optimizer, model, got a, b"),
        (Game(True), {}, "optimizer must have an entry for each player, model, got none"),
        (Adversarial(), {"generator": sgd}, "entry for each player, discriminator, generator, got"),
        (
            Adversarial(),
            dict.fromkeys(("discriminator", "generator", "gan"), sgd),
            "entry for each player, discriminator, generator, got discriminator, generator, gan",
        ),
        (Game(True), lambda p: 3, "optimizer must be .* or a function of .* got int"),
        (Game(True), sgd(nn.Linear(1, 1).parameters()), "hold parameters of the objective, got an"),
        (nn.Linear(1, 1), sgd, r"objective must have a method losses\(batch\) .* got Linear"),
        (nn.ReLU(), sgd, "objective must have parameters, got ReLU without"),
    ],
)
def test_players_that_do_not_fit(objective, optimizer, message):
    with pytest.raises(ValueError, match=message):
        fitted(objective, torch.zeros(4, 1), optimizer=optimizer)


class Some(Game):
    """An objective that says whose its parameters are: those of b are nobody's."""

    def losses(self, batch):
        return {"a": (self.a.weight - self.b.weight).square().sum() / 2}

    def players(self) -> dict[str, Any]:
        return {"a": self.a.parameters()}


def test_a_player_alone_moves_its_own_parameters_and_no_others():
    game = Some(True)
    fitted(game, torch.zeros(4, 1), optimizer=sgd, steps=1)
    assert game.place == pytest.approx((1.1, 2.0))


def test_a_player_must_have_parameters():
    class Empty(Some):
        def players(self) -> dict[str, Any]:
            return {"a": self.a.parameters(), "b": []}

    with pytest.raises(ValueError, match="the player 'b' must have parameters, got none"):
        make_optimizers(Empty(True), sgd)


def test_players_must_not_share_parameters():
    game = Game(True)
    both = {"a": torch.optim.SGD(game.parameters()), "b": torch.optim.SGD(game.b.parameters())}
    with pytest.raises(ValueError, match=r"not share parameters, got b.weight of both 'a' and 'b'"):
        fitted(game, torch.zeros(4, 1), optimizer=both)
