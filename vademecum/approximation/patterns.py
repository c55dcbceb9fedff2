r"""The activation pattern of a piecewise-linear network: which piece each unit is on.

The pattern of a ReLU layer at $x$ is $\kappa = \mathbb{1}_{W x + b > 0} \in \{0, 1\}^m$, and
$\mathrm{ReLU}(W x + b) = \operatorname{diag}(\kappa)(W x + b)$. In general a unit's entry is the
number of its thresholds below its input (0 or 1 for ReLU, leaky ReLU and the absolute value; 0, 1
or 2 for a clipped unit), and for a maximum the index of its first largest candidate. A unit that
sits on a threshold is on the piece below: a ReLU at 0 is inactive.

Inputs with equal patterns of all layers form a **cell**, a convex polyhedron on which the whole
network is one affine map (claim `activation_pattern`). The pattern is computed in the dtype of the
inputs, so within rounding of a boundary it may be that of the neighbouring cell.
"""

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vademecum.approximation.piecewise import Program, read_program
from vademecum.arguments import floats, whole
from vademecum.models import Output

__all__ = ["activation_pattern", "chunks", "program_for"]

_MEMORY = 2**28  # bytes for the activations of a chunk, beyond which larger ones do not pay


def activation_pattern(
    model: nn.Module,
    x: Float[Tensor, " batch *shape"],
    *,
    output: Output = None,
    memory: int | None = None,
) -> Integer[Tensor, " batch units"]:
    """The piece of every unit for each input, in the order in which the network computes them.

    Args:
        model: Any piecewise-linear module (see `linear_regions`), taken in evaluation.
        x: Inputs, one a row.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.

    Returns:
        Bytes, one column a unit (integers, should a unit have more than 256 pieces). Inputs lie in
        the same cell if and only if their rows are equal.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
        >>> with torch.no_grad():  # relu(x) and relu(1 - x)
        ...     _ = model[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        ...     _ = model[0].bias.copy_(torch.tensor([0.0, 1.0]))
        >>> activation_pattern(model, torch.tensor([[-1.0], [0.0], [0.5], [2.0]])).tolist()
        [[0, 1], [0, 1], [1, 1], [1, 0]]
    """
    program = program_for(model, x, output)
    rows = [_pattern(program, part) for part in chunks(program, x, memory)]
    return torch.cat(rows)


def _pattern(program: Program, x: Tensor) -> Tensor:
    with torch.no_grad():
        pieces = [piece.reshape(len(x), -1) for piece in program.run(x)[1]]
    if not pieces:
        return torch.zeros((len(x), 0), dtype=torch.uint8, device=x.device)
    largest = max(int(piece.max()) for piece in pieces)
    return torch.cat([p.to(torch.uint8 if largest < 256 else torch.int64) for p in pieces], 1)


def program_for(model: nn.Module, x: Tensor, output: Output = None) -> Program:
    """The steps of a model for inputs that are checked: finite floats, one example a row."""
    floats("x", x)
    if x.is_complex() or x.ndim < 2:
        kind = f"{x.dtype} of shape {tuple(x.shape)}"
        raise ValueError(f"x must be real, with one example a row, got {kind}")
    return read_program(model, tuple(x.shape[1:]), x, output=output)


def chunks(program: Program, x: Tensor, memory: int | None, extra: int = 0) -> tuple[Tensor, ...]:
    """Parts of the rows of x whose activations, and `extra` numbers a row, fit into memory."""
    each = (4 * program.total + extra) * x.element_size()
    if memory is None:
        memory = max(_MEMORY, each)
    if whole("memory", memory, low=1) < each:
        raise ValueError(f"memory must be >= {each} bytes, one example of this model, got {memory}")
    return x.split(memory // each)
