"""Losses over steps and layers over time: which outputs count, and the network as a deep one."""

import copy
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.claims import claim, equals
from vademecum.recurrence import CourseGRU, CourseLSTM, ElmanRNN
from vademecum.recurrence.claims._scalar_cells import elman, listed, slope_of


def step_losses(y: Tensor, target: Tensor, kind: str) -> Tensor:
    """The loss of each step, summed over sequences."""
    if kind == "squares":
        return (y - target).square().sum((0, 2)) / 2
    classes = target.argmax(-1)
    return -torch.log_softmax(y, -1).gather(2, classes[..., None]).sum((0, 2))


def gradients(loss: Tensor, net: torch.nn.Module) -> Tensor:
    """The gradient in all parameters as one vector, zero for those of outputs that are not read."""
    found = torch.autograd.grad(
        loss, list(net.parameters()), retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return torch.cat([g.flatten() for g in found])


@claim(
    by="identity",
    sources=("A-218", "B-362", "C-122", "E-235"),
    short=r"y^t = H_\omega(z^t):\quad L = \sum_{t=1}^T L_t\quad \text{or}\quad L = L_T",
)
def output_modes(total: Literal["sum", "mean"] = "sum", read_at: int = -1):
    r"""Outputs at every step, or only after the last one.

    Outputs $y^t = H_\omega(z^t)$ may be emitted at every step with total loss
    $L = \sum_{t=1}^T L_t$, or only after the last step with $L = L_T$, as in sequence
    classification; the second is the first with all other losses masked.

    *Proof.* A masked loss has no value and no gradient.

    Checked for simple networks, the sheets' LSTM and GRU, squared error and cross-entropy, $T = 6$:
    losses and gradients against runs over the beginnings of the sequence, each for its last output
    alone, and for simple networks against the loss number by number.

    Knobs:
        total: Whether losses of steps, masked ones among them, are added or averaged.
        read_at: The step at which the single output is read, from the end.
    """
    T, d, k = 6, 3, 4
    for net in (ElmanRNN(d, 5, k), CourseLSTM(d, 2, k), CourseGRU(d, 5, k)):
        x, target = torch.randn(2, T, d), torch.randn(2, T, k)
        for kind in ("squares", "classes"):
            at = {"net": type(net).__name__, "loss": kind}
            losses = step_losses(net(x).output, target, kind)
            mask = torch.zeros(T)
            mask[-1] = 1
            scale = 1.0 if total == "sum" else 1 / T
            alone = []
            for t in range(1, T + 1):
                y = net(x[:, :t]).output[:, [max(read_at, -t)]]
                alone.append(step_losses(y, target[:, t - 1 : t], kind)[0])
            masked = scale * (losses * mask).sum()
            yield equals("masked loss", masked, alone[-1], tol=1e-12, **at)
            one, other = gradients(masked, net), gradients(alone[-1], net)
            yield equals("gradient of the masked loss", one, other, tol=1e-12, **at)
            full = scale * step_losses(net(x).output, target, kind).sum()
            parts = torch.stack(alone)
            yield equals("loss of all steps", full, parts.sum(), tol=1e-12, **at)
            one, other = gradients(full, net), gradients(parts.sum(), net)
            yield equals("gradient of all steps", one, other, tol=1e-12, **at)
        if isinstance(net, ElmanRNN):
            by_hand = 0.0
            for one, wanted in zip(x.tolist(), target.tolist(), strict=True):
                last = elman(listed(net), one, [0.0] * 5)[1][-1]
                by_hand += sum((p - q) ** 2 / 2 for p, q in zip(last, wanted[-1], strict=True))
            found = scale * (step_losses(net(x).output, target, "squares") * mask).sum()
            yield equals("masked loss, number by number", found, by_hand, tol=1e-12)


output_modes.foil("averaged over all steps, masked ones included", total="mean")
output_modes.foil("the single output read one step early", read_at=-2)


@claim(
    by="identity",
    sources=("B-359", "D-273"),
    short=r"\nabla_\theta L = \sum_{t=1}^T \nabla_{\theta_t} L\,\big|_{\theta_1 = \dots ="
    r" \theta_T = \theta}",
)
def unrolling(combined: Literal["sum", "mean", "last"] = "sum", T: int = 20):
    r"""Unrolled through time, a recurrent network is a deep one with shared weights.

    For fixed $T$ a recurrent network equals a feedforward network of $T$ layers that shares its
    parameters across layers and receives one input per layer; hence its gradient is the sum of the
    gradients of the $T$ untied copies.

    *Proof.* The chain rule for $\theta \mapsto (\theta, \dots, \theta) \mapsto L$.

    Checked for simple networks, the sheets' LSTM and GRU, with a loss at the end and one at each
    step; for simple networks the gradient along a random direction is also found by a complex step
    through plain Python.

    Knobs:
        combined: How the gradients of copies make the gradient of the network.
        T: The number of steps.
    """
    d = 3
    for net in (ElmanRNN(d, 4, 2), CourseLSTM(d, 4, 2), CourseGRU(d, 5)):
        x, name = torch.randn(2, T, d), type(net).__name__
        copies = [copy.deepcopy(net) for _ in range(T)]
        state, outputs = None, []
        for t, layer in enumerate(copies):
            y, state = layer.step(x[:, t], state)
            outputs.append(y)
        y, tied = torch.stack(outputs, 1), net(x).output
        yield equals("outputs of the unrolled network", y, tied, tol=1e-11, net=name)
        for many in (False, True):
            steps = slice(None) if many else slice(-1, None)
            goal = F.mse_loss(y[:, steps], 0.3 * torch.ones_like(y[:, steps]), reduction="sum")
            each = torch.stack([gradients(goal, layer) for layer in copies])
            made = {"sum": each.sum(0), "mean": each.mean(0), "last": each[-1]}[combined]
            loss = (tied[:, steps] - 0.3).square().sum()
            wanted = gradients(loss, net)
            at = {"net": name, "losses": T if many else 1}
            yield equals("gradient from the copies", made, wanted, tol=1e-10, **at)
            if isinstance(net, ElmanRNN):
                along = {key: torch.randn_like(p) for key, p in net.named_parameters()}
                flat = torch.cat([v.flatten() for v in along.values()])
                stated = slope_of(loss_by_hand(net, x, along, many))
                yield equals("slope of the loss by a complex step", made @ flat, stated, tol=1e-10,
                             **at)  # fmt: skip


def loss_by_hand(net: ElmanRNN, x: Tensor, along: dict[str, Tensor], many: bool) -> Any:
    """The squared error to 0.3 of all outputs or the last ones, number by number."""
    total: Any = 0.0
    for one in x.tolist():
        outputs = elman(listed(net, along), one, [0.0] * net.m)[1]
        total += sum((v - 0.3) ** 2 for y in (outputs if many else outputs[-1:]) for v in y)
    return total


unrolling.foil("the gradient of the last copy alone", combined="last")
unrolling.foil("the mean over copies", combined="mean")
