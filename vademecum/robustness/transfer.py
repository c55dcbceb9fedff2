r"""Transfer of adversarial examples: made for one network, shown to another.

For networks $f_1, \dots, f_m$ and perturbations $r^{(a)}$ made for $f_a$ by an attack, the matrix

$$E_{ab} = \frac1n \#\{i : \arg\max f_b(x_i + r^{(a)}_i) \ne y_i\}$$

has the error of network $b$ on examples made for network $a$ (rows make, columns judge). Beside it
stand the errors without perturbations and, as a control, those under random perturbations of the
full radius: signs at random for linf, uniform directions for l2, a random coordinate for l1.

The errors are exact for these examples; the attack stops each perturbation as it likes, and one
that ends just behind the boundary of $a$ transfers less than one of full length. The claim is
`transfer_attack`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vademecum.randomness import given_back, source
from vademecum.results import one_line
from vademecum.robustness._logits import as_classifier, as_labels, finite
from vademecum.robustness._rows import in_portions
from vademecum.robustness._threat import Threat, as_threat
from vademecum.robustness.attacks import fgsm

__all__ = ["TransferMatrix", "transfer_matrix"]


class TransferMatrix(NamedTuple):
    """Errors of networks on examples that were made for others.

    Example:
        >>> TransferMatrix(("a", "b"), torch.ones(2, 2), torch.zeros(2), torch.zeros(2))
        TransferMatrix(names=('a', 'b'), error=tensor([[1., 1.], [1., 1.]]), clean=tensor([0., 0.]),
        noise=tensor([0., 0.]))
    """

    names: tuple[str, ...]
    """What the networks are called, in the order of rows and columns."""
    error: Float[Tensor, " m m"]
    """The share of examples made for the network of the row that the one of the column gets
    wrong."""
    clean: Float[Tensor, " m"]
    """The errors of the networks on examples as they are."""
    noise: Float[Tensor, " m"]
    """Their errors under random perturbations of the same radius."""

    __repr__ = one_line


def transfer_matrix(
    models: Sequence[nn.Module] | Mapping[str, nn.Module],
    x: Float[Tensor, " n *shape"],
    y: Int[Tensor, " n"],
    *,
    norm: Literal["linf", "l2", "l1"] = "linf",
    radius: float | Float[Tensor, " n"],
    attack: Callable[..., Any] = fgsm,
    box: tuple[float, float] | None = (0.0, 1.0),
    preprocess: Callable[[Tensor], Tensor] | None = None,
    quantum: float | None = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> TransferMatrix:
    """The errors of several networks on adversarial examples made for each of them.

    The models are taken in evaluation mode and never changed.

    Args:
        models: Modules that give logits for the same classes; or such by name.
        x: The examples.
        y: Their classes.
        norm: "linf", "l2" or "l1".
        radius: The radius, a number or one for each example.
        attack: An attack of this room, or any function with its arguments and result; knobs of its
            own are fixed with `functools.partial`.
        box: The lowest and the highest value of an input, or None for no such limits.
        preprocess: What stands between `x` and the models, such as a normalisation.
        quantum: The distance of neighbouring values of an input, 1/255 for pixels: perturbed
            examples lie on that grid. None for no grid.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If there is no model, or the attack refuses its arguments.

    References:
        Szegedy et al., Intriguing properties of neural networks, ICLR, 2014.

    Example:
        >>> a, b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        >>> _ = a.weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
        >>> _ = b.weight.data.copy_(torch.tensor([[1.0, 0.5], [0.0, 0.0]]))
        >>> x, y = torch.tensor([[0.3, 0.1], [0.3, 0.4]]), torch.tensor([0, 0])
        >>> transfer_matrix([a, b], x, y, norm="linf", radius=0.4, box=None).error
        tensor([[1.0000, 0.5000], [1.0000, 1.0000]])
    """
    named = dict(models) if isinstance(models, Mapping) else _named(models)
    if not named:
        raise ValueError("models must hold at least one, got none")
    threat = as_threat(x, norm, radius, box)
    y = as_labels("y", y, x)
    knobs = {"norm": norm, "radius": radius, "box": box, "preprocess": preprocess,
             "quantum": quantum, "memory": memory, "generator": generator}  # fmt: skip
    with given_back(generator):
        made = [attack(model, x, y, **knobs).x for model in named.values()]
        shown = [*made, x, _random(threat, x, generator)]
    errors = torch.stack(
        [_errors(model, shown, y, preprocess, memory) for model in named.values()], dim=1
    )
    return TransferMatrix(tuple(named), errors[:-2], errors[-2], errors[-1])


def _named(models: Any) -> dict[str, nn.Module]:
    if not isinstance(models, Sequence):
        raise ValueError(f"models must be a list of modules, got {type(models).__name__}")
    return {str(i): model for i, model in enumerate(models)}


def _errors(
    model: nn.Module, shown: list[Tensor], y: Tensor, preprocess: Any, memory: int | None
) -> Tensor:
    """The share of wrong predictions for each batch of examples."""
    with as_classifier(model, shown[-2], y, preprocess) as logits:
        found = [
            in_portions(lambda z: finite(logits(z), "x").argmax(1), x, memory=memory) for x in shown
        ]
    share = torch.stack([(each != y).double().mean() for each in found])
    return share.to(torch.promote_types(shown[0].dtype, torch.float32))


def _random(threat: Threat, x: Tensor, generator: torch.Generator | None) -> Tensor:
    """Points at random in the directions of the norm, as far as the radius and the box allow."""
    noise = torch.randn(x.shape, **source(generator, x.device)).to(x)
    r = threat.radius.view(-1, *[1] * (x.ndim - 1))
    return threat.project(x, x + r * threat.step(noise))
