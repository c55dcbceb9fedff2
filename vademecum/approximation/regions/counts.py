r"""How many linear regions: exact counts for one layer, bounds for many.

The kinks of a layer lie on hyperplanes $H_i = \{x : \langle w_i, x \rangle + b_i = \theta_i\}$ of
$\mathbb{R}^n$, and its cells are the regions that they cut space into. A new hyperplane $H$ cuts
exactly those regions of the others, $\mathcal{A}$, that it meets, which are the regions of the
arrangement that $\mathcal{A}$ cuts into $H$. So (deletion and restriction)

$$r(\mathcal{A} \cup \{H\}) = r(\mathcal{A}) + r(\mathcal{A}^H), \qquad r(\emptyset) = 1,$$

which `count_regions` evaluates in integer arithmetic: floating-point weights are integers times a
power of two, so parallel, equal and concurrent hyperplanes are recognised for certain. For $m$
hyperplanes in general position the count is Zaslavsky's,

$$R(m) = \sum_{i=0}^{\min(m, n)} \binom{m}{i} .$$

Of networks with $n$ inputs and $L$ layers of $m_1, \dots, m_L$ ReLUs the *best* has at least
$R(m_L) \prod_{l < L} \lfloor m_l / n \rfloor^n$ regions (Montúfar et al.), and *none* has more than
$\prod_l \sum_{j \le d_l} \binom{m_l}{j}$ with $d_l = \min(n, m_1, \dots, m_{l-1})$.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vademecum.approximation.piecewise import Affine, Kinks, Program, read_program
from vademecum.arguments import whole

__all__ = ["count_regions", "montufar_bound", "region_upper_bound", "zaslavsky_count"]

Row = tuple[int, ...]
_MOST = 3 * 10**7  # integer operations: some ten seconds


def zaslavsky_count(m: int, n: int) -> int:
    r"""The number $\sum_{i \le n} \binom{m}{i}$ of regions of $m$ hyperplanes in general position.

    Args:
        m: The number of hyperplanes.
        n: The dimension.

    References:
        Zaslavsky, Facing up to arrangements: face-count formulas for partitions of space by
        hyperplanes, Memoirs of the American Mathematical Society 154, 1975.

    Example:
        >>> zaslavsky_count(3, 2), zaslavsky_count(3, 5)
        (7, 8)
    """
    whole("m", m, low=0)
    return sum(math.comb(m, i) for i in range(min(m, whole("n", n, low=0)) + 1))


def montufar_bound(n: int, widths: Sequence[int]) -> int:
    r"""A number of regions that some ReLU network of this shape has at least.

    The bound $R(m_L) \prod_{l < L} \lfloor m_l / n \rfloor^n$ grows exponentially with the depth.
    It says nothing about a given network, whose weights may give it a single region.

    Args:
        n: The number of inputs.
        widths: The widths of the hidden layers, each at least `n`.

    References:
        Montúfar, Pascanu, Cho and Bengio, On the number of linear regions of deep neural networks,
        NeurIPS, 2014.

    Example:
        >>> montufar_bound(1, [2, 2, 2])
        12
    """
    widths = _widths(n, widths)
    if min(widths) < n:
        raise ValueError(f"widths must be >= n = {n}, got {min(widths)}")
    folds = math.prod((m // n) ** n for m in widths[:-1])
    return folds * zaslavsky_count(widths[-1], n)


def region_upper_bound(n: int, widths: Sequence[int]) -> int:
    r"""The number of regions that no ReLU network of this shape exceeds.

    $\prod_l \sum_{j \le d_l} \binom{m_l}{j}$: each layer divides the image of a region, a piece of
    a $d_l$-dimensional space, by $m_l$ hyperplanes. Polynomial in the width at a given depth.

    Args:
        n: The number of inputs.
        widths: The widths of the hidden layers.

    References:
        Raghu, Poole, Kleinberg, Ganguli and Sohl-Dickstein, On the expressive power of deep neural
        networks, ICML, 2017. Montúfar, Notes on the number of linear regions of deep neural
        networks, SampTA, 2017.

    Example:
        >>> region_upper_bound(1, [3, 3]), region_upper_bound(2, [3, 1, 3])
        (16, 56)
    """
    widths = _widths(n, widths)
    dims = [min(n, *widths[:l]) if l else n for l in range(len(widths))]
    return math.prod(zaslavsky_count(m, d) for m, d in zip(widths, dims, strict=True))


def _widths(n: int, widths: Sequence[int]) -> list[int]:
    whole("n", n, low=1)
    widths = [whole("widths", m, low=1) for m in widths]
    if not widths:
        raise ValueError("widths must not be empty")
    return widths


def count_regions(model: nn.Module, shape: Sequence[int] | int | None = None) -> int:
    """The exact number of linear regions, in all of input space, of a network with one layer.

    Args:
        model: A piecewise-linear module with one layer of units (ReLU, leaky ReLU, absolute value,
            clipped ...) behind an affine map of the input; what comes after is of no concern.
        shape: The shape of one input; by default the width of the model's first dense layer.

    Returns:
        The number of cells of equal activation pattern that are full-dimensional.

    Raises:
        ValueError: If units depend on other units (then use `linear_regions`, on a plane), or the
            count would take too long.

    Example:
        >>> layer = nn.Linear(2, 4)
        >>> with torch.no_grad():  # x, y, x + y and, parallel to the first, x - 1
        ...     _ = layer.weight.copy_(torch.tensor([[1.0, 0], [0, 1], [1, 1], [1, 0]]))
        ...     _ = layer.bias.copy_(torch.tensor([0.0, 0, 0, -1]))
        >>> count_regions(nn.Sequential(layer, nn.ReLU()))
        9
    """
    if shape is None:
        first = next((m for m in model.modules() if isinstance(m, nn.Linear)), None)
        if first is None:
            raise ValueError("shape must be given for a model without a dense layer")
        shape = first.in_features
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    like = next(model.parameters(), torch.empty(0)).detach().double()
    program = read_program(model, shape, like)
    rows = _hyperplanes(program, torch.zeros((1, *shape)).to(like))
    m, width = len(rows), torch.Size(shape).numel() + 1
    work = zaslavsky_count(m, width - 2) * m * width
    if work > _MOST:
        raise ValueError(
            f"model must be smaller: {m} hyperplanes in {width - 1} dimensions take {work:.1e}"
            f" operations, at most {_MOST:.0e} are allowed"
        )
    return _count(rows)


def _hyperplanes(program: Program, origin: Tensor) -> set[Row]:
    """The hyperplanes on which a unit of the first and only layer changes its piece."""
    layers = [i for i, step in enumerate(program.steps) if not isinstance(step.map, Affine)]
    if len(layers) != 1 or not isinstance(unit := program.steps[layers[0]].map, Kinks):
        names = ", ".join(program.steps[i].name for i in layers) or "none"
        raise ValueError(f"model must have one layer of units with kinks, got {names}")
    columns = _up_to(program, layers[0], origin)
    rows = set()
    for threshold in unit.thresholds:
        shifted = columns.clone()
        shifted[0] -= threshold
        for b, *w in shifted.reshape(len(shifted), -1).T.tolist():
            if any(w):
                rows.add(_normal([*w, b]))
    return rows


def _up_to(program: Program, at: int, origin: Tensor) -> Tensor:
    """The columns of a layer's input: its value at 0, and its derivative in each coordinate."""
    size = origin[0].numel()
    basis = torch.eye(size, dtype=origin.dtype, device=origin.device)
    values = {program.source: torch.cat([origin.flatten(1), basis]).view(1, -1, *origin.shape[1:])}
    with torch.no_grad():
        for step in program.steps[:at]:
            values[step.output] = program.columns(step, [values[name] for name in step.inputs])
    return values[program.steps[at].inputs[0]][0]


def _normal(row: Sequence[float]) -> Row:
    """A hyperplane as coprime integers, the first of which that is not zero is positive."""
    ratios = [float(v).as_integer_ratio() for v in row]
    common = math.lcm(*(q for _, q in ratios))
    return _coprime([p * (common // q) for p, q in ratios])


def _coprime(row: Sequence[int]) -> Row:
    factor = math.gcd(*row)
    if next(v for v in row if v) < 0:
        factor = -factor
    return tuple(v // factor for v in row)


def _count(rows: set[Row]) -> int:
    """The regions of distinct hyperplanes (w, b), by deletion and restriction."""
    if not rows or len(next(iter(rows))) == 2:
        return len(rows) + 1  # points on a line
    total, earlier = 1, []
    for h in sorted(rows):
        total += _count(_restrict(earlier, h))
        earlier.append(h)
    return total


def _restrict(rows: list[Row], h: Row) -> set[Row]:
    """The hyperplanes that others cut into h, in all coordinates but the first that h fixes."""
    p = next(i for i, v in enumerate(h[:-1]) if v)
    found = set()
    for row in rows:
        cut = [h[p] * v - row[p] * u for i, (v, u) in enumerate(zip(row, h, strict=True)) if i != p]
        if any(cut[:-1]):  # not parallel to h
            found.add(_coprime(cut))
    return found
