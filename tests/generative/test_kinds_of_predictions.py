"""Models that say what they predict: everything that takes one believes them, or refuses."""

# pyright: reportArgumentType=false

from types import SimpleNamespace

import pytest
import torch

from vademecum.generative import (
    DDPM,
    VPSDE,
    MixtureScore,
    NoiseSchedule,
    annealed_langevin,
    fisher_divergence,
    log_likelihood,
    probability_flow,
    reverse_sde_sample,
    score_matching_loss,
)

F64 = torch.float64


def dice(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("kind", ["noise", "x0", "v", "score"])
def test_what_a_model_says_that_it_predicts_counts(kind):
    """A mixture's noise taken for its score would give samples without an error."""
    process, one = VPSDE(), torch.ones(1, dtype=F64)
    model, score = (
        MixtureScore(one, one[:, None], one / 4, process=process, predicts=k)
        for k in (kind, "score")
    )
    x = torch.randn(4, 1, dtype=F64, generator=dice(3))
    levels = torch.tensor([0.9, 0.5])
    calls = [
        lambda m, **k: reverse_sde_sample(m, (4, 1), process=process, steps=4, dtype=F64,
                                          generator=dice(), **k),
        lambda m, **k: annealed_langevin(m, x, process=process, levels=levels, per_level=2,
                                         generator=dice(), **k),
        lambda m, **k: probability_flow(m, x, process=process, end=0.2, tol=1e-9, **k).x,
        lambda m, **k: log_likelihood(m, x, process=process, start=0.2, tol=1e-9, **k).log_prob,
        lambda m, **k: score_matching_loss(m, x, torch.full((4,), 0.4), process=process,
                                           generator=dice(), **k),
    ]  # fmt: skip
    for call in calls:
        torch.testing.assert_close(call(model), call(score), rtol=1e-6, atol=1e-6)
        other = "x0" if kind == "noise" else "noise"
        with pytest.raises(ValueError, match=f"predicts must be '{kind}', as the model says"):
            call(model, predicts=other)
    odd = SimpleNamespace(predicts="mean")
    with pytest.raises(ValueError, match=r"predicts must be one of .*, got 'mean'"):
        annealed_langevin(odd, x, process=process, levels=levels)


def test_the_fisher_divergence_is_of_scores():
    process, one, x = VPSDE(), torch.ones(1), torch.randn(5, 1)
    noise, score = (
        MixtureScore(one, one[:, None], one, process=process, predicts=k)
        for k in ("noise", "score")
    )
    t = torch.full((5,), 0.4)
    assert float(fisher_divergence(score, x, score, t=t).value) == 0
    for name, given in (("model", (noise, x, score)), ("score", (score, x, noise))):
        with pytest.raises(ValueError, match=f"{name} must give scores, got one that predicts 'n"):
            fisher_divergence(*given, t=t)


def test_a_network_trained_for_another_prediction_is_no_ddpm_of_this():
    schedule = NoiseSchedule([0.2] * 5)
    net = MixtureScore(torch.ones(1), torch.ones(1, 2), torch.ones(1), process=schedule,
                       predicts="v")  # fmt: skip
    assert DDPM(net, (2,), schedule=schedule, predicts="v").predicts == "v"
    with pytest.raises(ValueError, match="predicts must be 'v', as the model says, got 'noise'"):
        DDPM(net, (2,), schedule=schedule)
