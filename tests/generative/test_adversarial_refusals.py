"""What a game refuses, and how it names a loss that is no number."""

from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from tests.generative.test_adversarial_games import Listed
from vademecum.generative import GAN


def bad(**options) -> Any:
    return GAN(nn.Linear(2, 3), nn.Linear(3, 1), **{"latent_dim": 2, **options})


def shared():
    layer = nn.Linear(2, 2)
    return GAN(layer, nn.Sequential(layer, nn.Linear(2, 1)), latent_dim=2)


def normalised(layer: nn.Module):
    D = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), layer))
    return lambda: GAN(nn.Linear(2, 3), D, latent_dim=2, constraint="gradient-penalty")


EMPTY: Any = ()
REFUSED = {
    r"latent_dim must be >= 1, got 0": lambda: bad(latent_dim=0),
    r"objective must be one of 'saturating', 'non-saturating', 'wasserstein', got 'hinge'": (
        lambda: bad(objective="hinge")
    ),
    r"constraint must be one of None, 'clip', 'gradient-penalty', got 'spectral'": (
        lambda: bad(constraint="spectral")
    ),
    r"prior must be one of 'normal', 'uniform', got 'laplace'": lambda: bad(prior="laplace"),
    r"clip_at must be > 0, got 0": lambda: bad(clip_at=0.0),
    r"penalty must be >= 0, got -1": lambda: bad(penalty=-1.0),
    r"must not share parameters, got 'weight'": shared,
    r"must give logits, got a Sigmoid": lambda: GAN(
        nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 1), nn.Sequential(nn.Sigmoid())), latent_dim=2
    ),
    r"the gradient penalty is per example, got BatchNorm1d '1.1'": normalised(nn.BatchNorm1d(4)),
    r"per example, got BatchNorm2d '1.1'": normalised(nn.BatchNorm2d(4, affine=False)),
    r"per example, got SyncBatchNorm": normalised(nn.SyncBatchNorm(4)),
    r"per example, got LazyBatchNorm1d": normalised(nn.LazyBatchNorm1d()),
    r"constraint must be 'clip' to clip, got None": lambda: bad().clip(),
    r"batch must be a tensor of floating-point numbers, got torch.int64": (
        lambda: bad().losses(torch.ones(4, 3, dtype=torch.long))
    ),
    r"batch must be a tensor of floating-point numbers, got list": lambda: bad().losses([[1.0]]),
    r"batch must be a tensor of floating-point numbers, got tuple": (
        lambda: GAN(nn.Tanh(), nn.Identity(), latent_dim=1).losses(EMPTY)
    ),
    r"batch must have shape \(n, ...\), got \(3,\)": lambda: bad().losses(torch.ones(3)),
    r"batch must have shape \(n, ...\), got \(0, 3\)": lambda: bad().losses(torch.ones(0, 3)),
    r"batch must be on cpu as the players are, got meta": (
        lambda: bad().losses(torch.ones(4, 3, device="meta"))
    ),
    r"shaped like the batch, \(4, 2\), got \(4, 3\)": lambda: bad().losses(torch.ones(4, 2)),
    r"players must be among discriminator, generator, got \('critic',\)": (
        lambda: bad().losses(torch.ones(4, 3), players=("critic",))
    ),
    r"players must be among discriminator, generator, got \(\)": (
        lambda: bad().losses(torch.ones(4, 3), players=())
    ),
    r"n must be >= 1, got 0": lambda: bad().sample(0),
    r"z must have shape \(n, 2\), got \(4, 3\)": lambda: bad()(torch.ones(4, 3)),
    r"discriminator must give a tensor with 4 rows, got \(12, 1\)": lambda: GAN(
        nn.Linear(2, 3), nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (12, 1))), latent_dim=2
    ).losses(torch.ones(4, 3)),
    r"generator must give a tensor with 4 rows, got tuple": lambda: GAN(
        nn.LSTM(2, 3), nn.Linear(3, 1), latent_dim=2
    ).losses(torch.ones(4, 3)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # it would complain first
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()


class Steep(nn.Module):
    """A critic of finite values whose slope at 0 is infinite, or NaN."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x.abs().sqrt().sum(1)


def test_a_loss_that_is_no_number_names_its_term():
    x = torch.ones(4, 2)
    hurt = x.clone()
    hurt[2, 1] = torch.nan
    wide = GAN(Listed(torch.full((4, 2), torch.nan)), nn.Linear(2, 1), latent_dim=1)
    for batch, gan, players, message in (
        (hurt, GAN(Listed(x), nn.Linear(2, 1), latent_dim=1), ("discriminator",),
         "the discriminator's loss must be finite, got nan for real examples; the batch is not"),
        (x, wide, ("discriminator",), "discriminator's loss .* got nan for generated examples$"),
        (x, wide, ("generator",), "the generator's loss must be finite, got nan for generated"),
        (0 * x, GAN(Listed(0 * x), Steep(), latent_dim=1, constraint="gradient-penalty"),
         ("discriminator", "generator"), "got nan for gradient penalty$"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            gan.losses(batch, players=players)


def test_repr_says_what_is_played():
    text = repr(bad(objective="wasserstein", constraint="clip"))
    assert "objective='wasserstein', constraint='clip', prior='normal'" in text
