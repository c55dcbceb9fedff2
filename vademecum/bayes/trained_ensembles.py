r"""Deep ensembles: networks of one kind from different starts, each trained on all of the data.

Their average $\frac1K \sum_k p(y \mid x, \theta_k)$ is a posterior predictive with equal masses on
K minima, which need not lie in one basin. It is no sample of the posterior. All members are trained
at once (`vademecum.models.StackedMembers`), each with its own order of the examples.

References:
    Lakshminarayanan, Pritzel and Blundell, Simple and scalable predictive uncertainty estimation
    using deep ensembles, NIPS, 2017.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.models import Loss, StackedMembers, count_examples, loss_for
from vademecum.progress import ticking
from vademecum.randomness import own_randomness, source
from vademecum.results import one_line

__all__ = ["DeepEnsemble", "deep_ensemble"]


class DeepEnsemble(NamedTuple):
    """Networks whose predictions are averaged with equal weights.

    Example:
        >>> DeepEnsemble([nn.Linear(1, 1), nn.Linear(1, 1)], torch.zeros(2)).losses
        tensor([0., 0.])
    """

    models: list[nn.Module]
    """The networks, in evaluation mode."""
    losses: Float[Tensor, " members"]
    """The mean training loss of each in the last epoch."""

    __repr__ = one_line


def deep_ensemble(
    module: Callable[[], nn.Module],
    x: Tensor,
    y: Tensor,
    *,
    loss: Loss | None = None,
    members: int = 5,
    epochs: int = 100,
    batch_size: int = 32,
    learning_rate: float = 1e-2,
    weight_decay: float = 0.0,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> DeepEnsemble:
    """Train several networks from different starts, all at once.

    What `torch.func.vmap` cannot map, such as batch normalisation with its statistics, is trained
    one by one with a `SlowPathWarning`.

    Args:
        module: What makes a network with outputs (n, k), with random weights.
        x: The inputs.
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        members: The number of networks.
        epochs: How often each network sees the data.
        batch_size: About how many examples a step takes.
        learning_rate: The step size of AdamW.
        weight_decay: Its decay.
        generator: Where random numbers come from; torch's global generator by default. They seed
            weights, orders and dropout.
        progress: Whether to show a progress bar on standard error. It counts epochs.

    Raises:
        ValueError: If `module` makes no networks, or networks of different kinds, or the training
            diverges.

    Example:
        >>> x = torch.linspace(-1, 1, 20)[:, None]
        >>> make, knobs = lambda: nn.Linear(1, 1), {"members": 3, "learning_rate": 0.1}
        >>> found = deep_ensemble(make, x, 2 * x, **knobs)
        >>> [round(net.weight.item(), 1) for net in found.models]
        [2.0, 2.0, 2.0]
    """
    sizes = {"members": members, "epochs": epochs, "batch_size": batch_size}
    for name, value in sizes.items():
        whole(name, value, low=1)
    number("learning_rate", learning_rate, above=0)
    number("weight_decay", weight_decay, low=0)
    if not isinstance(x, Tensor):
        raise ValueError(f"x must be a tensor, got {type(x).__name__}")
    n, of = count_examples(x, y), loss_for(y, loss)
    seed = int(torch.randint(2**31 - 1, (1,), **source(generator, "cpu")))
    with own_randomness(seed), torch.enable_grad():
        stack = _stacked(module, members, x)
        steps = torch.optim.AdamW(
            list(stack.parameters.values()), lr=learning_rate, weight_decay=weight_decay
        )
        losses = x.new_zeros(1, members)
        with ticking("epochs", epochs, progress=progress) as tick:
            for _ in range(epochs):
                orders = torch.rand(members, n).argsort(1).to(x.device)
                made = []
                for some in orders.tensor_split(max(1, round(n / batch_size)), 1):
                    each = stack.losses(x[some], y[some], of)
                    steps.zero_grad()
                    each.sum().backward()
                    steps.step()
                    made.append(each.detach())
                losses = torch.stack(made)
                tick(1)
    found = losses.mean(0)
    if not found.isfinite().all():
        k = int((~found.isfinite()).nonzero()[0])
        raise ValueError(f"learning_rate must be smaller: the loss of member {k} is not finite")
    stack.write_back()
    return DeepEnsemble(stack.modules, found)


def _stacked(module: Callable[[], nn.Module], members: int, x: Tensor) -> StackedMembers:
    made = [module() for _ in range(members)]
    if not all(isinstance(m, nn.Module) for m in made):
        raise ValueError(f"module must make an nn.Module, got {type(made[0]).__name__}")
    made = [m.to(x.device, x.dtype) if x.is_floating_point() else m.to(x.device) for m in made]
    with torch.no_grad():
        z = made[0].eval()(x[:1])
    made[0].train()
    if not isinstance(z, Tensor) or z.ndim != 2:
        given = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise ValueError(f"module must make networks with outputs of shape (n, k), got {given}")
    return StackedMembers(made, outputs=z.shape[1])
