"""Pictures of a tape: its graph from the leaves on the left to the output on the right.

A node stands in the column of its depth, the longest way from a leaf, and in its column near the
mean height of its parents (the barycentre rule). The colour tells inputs, parameters, constants,
operations and the output apart.

References:
    Sugiyama, Tagawa and Toda, Methods for visual understanding of hierarchical system structures,
    IEEE Transactions on Systems, Man, and Cybernetics, 1981.
"""

from typing import TYPE_CHECKING

from vademecum.gradients.tape.engine import Tape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_tape"]

_COLOURS = {"input": "#bcdcff", "parameter": "#ffdca8", "constant": "0.9"}


def draw_tape(tape: Tape, axes: "Axes | None" = None) -> "Figure":
    r"""Draw the graph that a tape has recorded.

    Args:
        tape: The tape.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> figure = draw_tape(Tape(lambda x: (x * x).sum(), torch.ones(3)))
        >>> [text.get_text() for text in figure.axes[0].texts if text.get_text()]
        ['input\n3', 'mul\n3', 'sum']
    """
    from matplotlib.figure import Figure

    places = _layout(tape)
    if axes is None:
        wide, high = (1 + max(place[k] for place in places) for k in (0, 1))
        size = min(max(4.0, 1.3 * wide), 40.0), min(max(2.0, 0.9 * high), 40.0)
        axes = Figure(figsize=size, layout="constrained").subplots()
    for i, step in enumerate(tape.steps):
        shape = " × ".join(map(str, step.shape))
        colour = "#c8efc8" if i == tape.end else _COLOURS.get(step.label, "white")
        axes.text(
            *places[i], f"{step.label}\n{shape}" if shape else step.label, ha="center",
            va="center", fontsize=8, zorder=3, bbox={"boxstyle": "round", "fc": colour},
        )  # fmt: skip
        for parent in step.parents:
            bend = "arc3,rad=0.15" if places[i][0] - places[parent][0] > 1 else "arc3"
            axes.annotate(
                "", places[i], places[parent],
                arrowprops={"arrowstyle": "->", "color": "0.4", "shrinkA": 16, "shrinkB": 18,
                            "connectionstyle": bend},
            )  # fmt: skip
    axes.set(
        xlim=(-0.6, max(x for x, _ in places) + 0.6), ylim=(-0.6, max(y for _, y in places) + 0.6)
    )
    axes.set_axis_off()
    axes.set_title(f"{len(tape.steps)} nodes, {tape.edges} edges to differentiate", fontsize=9)
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _layout(tape: Tape) -> list[tuple[float, float]]:
    """The column and height of each node."""
    depth: list[int] = []
    for step in tape.steps:
        depth.append(1 + max((depth[p] for p in step.parents), default=-1))
    for i in reversed(range(len(depth))):  # a leaf stands just before its first user
        if not tape.steps[i].parents:
            users = [depth[j] for j, step in enumerate(tape.steps) if i in step.parents]
            depth[i] = min(users, default=1) - 1
    height = [0.0] * len(depth)
    for column in range(max(depth) + 1):
        here = [i for i, d in enumerate(depth) if d == column]
        wish = {
            i: sum(height[p] for p in parents) / len(parents) if parents else float(k)
            for k, i in enumerate(here)
            for parents in [tape.steps[i].parents]
        }
        for k, i in enumerate(sorted(here, key=wish.__getitem__)):
            height[i] = float(k)
    return [(float(d), h) for d, h in zip(depth, height, strict=True)]
