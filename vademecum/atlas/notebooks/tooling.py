# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""What the course says of Python, NumPy and PyTorch, tried out.

Nothing here is to be imported: the statements of this room are about the tools, and each is checked
on the tools as they are installed. Most of them are conventions that are easily taken for the
opposite: which way `round` goes at a tie, that `np.linalg.svd` returns *V* already transposed, that
`A * B` is no matrix product, that gradients add up until they are reset.
"""

import marimo

app = marimo.App(width="full", app_title="tooling")

with app.setup:
    import math
    from itertools import accumulate
    from random import Random

    import marimo as mo
    from matplotlib.figure import Figure

    from vademecum.atlas.pictures import as_image

    GREY = "#7d8289"


@app.cell(hide_code=True)
def _():
    mo.md(
        "### Round half to even\n"
        "Python's `round` sends ties to the even neighbour, not up as in school. Add up many"
        " rounded numbers to see why: the errors of the one cancel, those of the other pile up. The"
        " more decimals, the fewer ties, and the smaller the difference."
    )
    return


@app.cell(hide_code=True)
def _():
    many = mo.ui.slider(100, 3000, 100, value=1500, label="numbers added", show_value=True)
    decimals = mo.ui.slider(1, 3, 1, value=1, label="decimals of each", show_value=True)
    seed = mo.ui.slider(0, 20, 1, value=0, label="seed", show_value=True)
    mo.hstack([many, decimals, seed], wrap=True, justify="start")
    return decimals, many, seed


@app.function
def half_up(x: float) -> int:
    """Rounding as in school."""
    return math.floor(x + 0.5)


@app.function
def draw_rounding(many: int, decimals: int, seed: int) -> Figure:
    """Both rules at the ties, and the error of sums of numbers that they rounded."""
    dice = Random(seed)
    numbers = [dice.randrange(10 ** (decimals + 2)) / 10**decimals for _ in range(many)]
    rules = (("half to even: round(x)", round, "o", "C0"), ("half up", half_up, "x", "C1"))
    figure = Figure((8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    ties = [k + 0.5 for k in range(-3, 3)]
    for k in range(-3, 4):
        left.plot([k - 0.5, k + 0.5], [k, k], color=GREY)
    for name, rule, mark, colour in rules:
        left.plot(ties, [rule(x) for x in ties], mark, ms=7, mfc="none", mew=2, color=colour)
        drift = list(accumulate(rule(x) - x for x in numbers))
        style = "-" if rule is round else "--"
        right.plot(drift, style, color=colour, label=f"{name}: {drift[-1]:+.1f}")
    left.set_title("ties: ○ to even, × up", fontsize=10)
    left.set(xlabel="x", ylabel="rounded", xticks=range(-3, 4), yticks=range(-3, 4))
    share = sum(x % 1 == 0.5 for x in numbers) / many
    right.set(xlabel="numbers added", ylabel="sum of rounded − sum")
    right.set_title(f"{share:.1%} of the numbers are ties", fontsize=10)
    right.axhline(0, color=GREY, lw=0.8)
    right.legend(frameon=False, fontsize=9)
    return figure


@app.cell(hide_code=True)
def _show_rounding(decimals, many, seed):
    _knobs = (many.value, decimals.value, seed.value)
    _said = f"The error of the sum of {many.value} rounded numbers: it drifts away if ties go up,"
    mo.Html(as_image(lambda: draw_rounding(*_knobs), f"{_said} and hardly if they go to even."))
    return


if __name__ == "__main__":
    app.run()
