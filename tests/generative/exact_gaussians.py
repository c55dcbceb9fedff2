"""Exact predictors of normal data, and what linear chains make of variances: plain loops."""

# pyright: reportFunctionMemberAccess=false

from torch import Tensor

from vademecum.generative import NoiseSchedule


def exact(schedule: NoiseSchedule, v0: float, m0: float = 0.0, *, predicts: str = "noise"):
    """What an ideal network predicts of data N(m0, v0), from the joint law of (x_t, x_0)."""

    def model(x: Tensor, t: Tensor) -> Tensor:
        bar = schedule.alpha_bar[t].view(-1, *[1] * (x.ndim - 1))
        v = bar * v0 + 1 - bar
        centred = x.double() - bar.sqrt() * m0
        x0 = m0 + bar.sqrt() * v0 / v * centred
        noise = (1 - bar).sqrt() / v * centred
        found = {
            "x0": x0,
            "noise": noise,
            "v": bar.sqrt() * noise - (1 - bar).sqrt() * x0,
            "score": -centred / v,
        }
        return found[predicts].to(x)

    model.predicts = predicts
    return model


def chain_variance(schedule: NoiseSchedule, steps: list[int], v0: float, *, eta: float = 0.0,
                   added: str = "eta") -> float:  # fmt: skip
    """The variance at the end of a chain from N(0, 1), by the textbook formulas, one by one."""
    bar = schedule.alpha_bar.tolist()
    variance = 1.0
    for t, s in zip(steps, [*steps[1:], 0], strict=True):
        v = bar[t] * v0 + 1 - bar[t]
        gain_x0, gain_noise = bar[t] ** 0.5 * v0 / v, (1 - bar[t]) ** 0.5 / v
        beta = 1 - bar[t] / bar[s]
        tilde = (1 - bar[s]) / (1 - bar[t]) * beta
        sigma2 = eta**2 * tilde
        gain = bar[s] ** 0.5 * gain_x0 + max(1 - bar[s] - sigma2, 0.0) ** 0.5 * gain_noise
        noise = {"eta": sigma2, "large": beta}[added] if s else 0.0
        variance = gain**2 * variance + noise
    return variance
