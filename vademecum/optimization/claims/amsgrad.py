"""AMSGrad: and the convex problem on which Adam needs it."""

from fractions import Fraction

import torch
from torch import nn

from vademecum.claims import at_most, claim, equals


def kept_maxima(squares: list[Fraction], beta: Fraction, *, fed_back: bool) -> list[Fraction]:
    """The maxima of the averages of squares; fed back, the maximum is what is averaged on."""
    average = largest = Fraction(0)
    found = []
    for g2 in squares:
        average = beta * (largest if fed_back else average) + (1 - beta) * g2
        largest = max(largest, average)
        found.append(largest)
    return found


def torch_maxima(grads: list[float], beta: float) -> tuple[list[float], list[float]]:
    """What torch's AMSGrad keeps after each gradient, and its steps over the gradients."""
    x = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([x], lr=1.0, betas=(0.0, beta), eps=0.0, amsgrad=True)
    kept, rates = [], []
    for g in grads:
        before, x.grad = x.item(), torch.tensor([g])
        optimizer.step()
        kept.append(optimizer.state[x]["max_exp_avg_sq"].item())
        rates.append((before - x.item()) / g if g else float("nan"))
    return kept, rates


@claim(
    by="identity",
    sources=("A-089", "B-256"),
    budget=0.3,
    full={"n": 200},
    short=r"\hat v_t = \max(\hat v_{t-1}, v_t), \quad v_t = \beta_2 v_{t-1} + (1 - \beta_2) g_t^2",
)
def amsgrad(fed_back: bool = False, n: int = 20):
    r"""AMSGrad.

    AMSGrad keeps Adam's raw average $v_t$ and preconditions with its running maximum,
    $\hat v_t = \max(\hat v_{t-1}, v_t)$ entrywise, so effective rates never increase. The maximum
    must not be fed back into the average.

    Checked in fractions for $\beta_2 = 0.9$ and gradients $(10, 0, 0, 10, 0, 10)$, and for drawn
    ones, against what torch keeps under `amsgrad=True`. torch divides the maximum by Adam's
    $1 - \beta_2^t$ afterwards, so that its rates do increase at first: after $(10, 1)$ by
    $\sqrt{1 + \beta_2}$.

    Knobs:
        fed_back: Whether the maximum takes the place of the average.
        n: How many drawn gradients there are.
    """
    beta = Fraction(9, 10)
    known = [10, 0, 0, 10, 0, 10]
    drawn = torch.randint(-9, 10, (n,)).tolist()
    for name, grads in (("known", known), ("drawn", drawn)):
        stated = kept_maxima([Fraction(g * g) for g in grads], beta, fed_back=fed_back)
        kept, _ = torch_maxima([float(g) for g in grads], 0.9)
        for t, (found, wanted) in enumerate(zip(kept, stated, strict=True), 1):
            yield equals("maximum that AMSGrad keeps", found, float(wanted), t=t, gradients=name)
        shrink = torch.tensor(kept).diff()
        yield at_most("decrease of the maximum", -shrink, 0.0, tol=0.0, gradients=name)
    printed = torch.tensor([10, 10, 10, 17.29, 17.29, 24.0049])
    kept, _ = torch_maxima([float(g) for g in known], 0.9)
    yield equals("maximum for the known gradients", torch.tensor(kept), printed)
    _, rates = torch_maxima([10.0, 1.0], 0.9)
    yield equals("torch's rate in step 2 over step 1", rates[1] / rates[0], 1.9**0.5)


amsgrad.erratum(
    "B-256",
    printed=r"$\gamma^{k+1} = \max\{\gamma^k, \gamma^{k+1}\}$",
    right=r"$\hat\gamma^{k+1} = \max\{\hat\gamma^k, \gamma^{k+1}\}$ with the average $\gamma$ kept"
    " beside it",
    why="One symbol for the raw average and for its maximum feeds the maximum back: with"
    r" $\alpha = 0.9$ and gradients $(10, 0, 0, 10, 0, 10)$ AMSGrad has 10, 10, 10, 17.29, 17.29,"
    " 24.0, the printed recursion 10, 10, 10, 19.0, 19.0, 27.1.",
    weight="hard",
    refuted_by="maximum that AMSGrad keeps",
    fed_back=True,
)


def last_round(method: str, C: float, rounds: int) -> float:
    """Where a method ends on the losses C x, -x, -x in turn, projected to [-1, 1]."""
    x = nn.Parameter(torch.zeros(1))
    kinds = {
        "Adam": lambda: torch.optim.Adam([x], betas=(0.0, 1 / (1 + C * C)), eps=0.0),
        "AMSGrad": lambda: torch.optim.Adam(
            [x], betas=(0.0, 1 / (1 + C * C)), eps=0.0, amsgrad=True
        ),
        "gradient descent": lambda: torch.optim.SGD([x]),
    }
    optimizer = kinds[method]()
    for t in range(1, rounds + 1):
        optimizer.param_groups[0]["lr"] = 0.5 / t**0.5
        x.grad = torch.tensor([C if t % 3 == 1 else -1.0])
        optimizer.step()
        with torch.no_grad():
            x.clamp_(-1, 1)
    return x.item()


@claim(
    by="identity",
    sources=("A-089",),
    budget=1.0,
    full={"rounds": 3000},
    short=r"[-1, 1],\ C x, -x, -x, \dots: \text{ Adam} \to +1 \text{ (the worst)},"
    r"\text{ AMSGrad} \to -1 \text{ (the best)}",
)
def adam_nonconvergence(
    converging: tuple[str, ...] = ("AMSGrad", "gradient descent"), rounds: int = 300
):
    r"""A convex problem on which Adam fails.

    On $[-1, 1]$ with losses $C x$ every third round and $-x$ otherwise, $C > 2$, the best point is
    $x = -1$: three rounds add up to $(C - 2) x$. Adam with $\beta_1 = 0$,
    $\beta_2 = \frac{1}{1 + C^2}$ and steps $\alpha / \sqrt t$ is driven to the worst point $+1$,
    AMSGrad converges to $-1$. (Reddi, Kale and Kumar, On the convergence of Adam and beyond, 2018.)

    *Why.* In the round with gradient $C$ Adam divides by some $C$, in the two others by about 1:
    it walks back by $\alpha / \sqrt t$ and forth by more than that, together. Checked for torch's
    methods with projection, $C = 3, 4, 6$, $\alpha = 0.5$, from 0 on; projected gradient descent
    with the same steps finds $-1$, so the problem itself is fair.

    Knobs:
        converging: The methods that are said to converge.
        rounds: How many rounds are played, in threes.
    """
    rounds -= rounds % 3
    for C in (3.0, 4.0, 6.0):
        for method in converging:
            end = last_round(method, C, rounds)
            # Two rounds of -1 after one of C leave it at most 2 alpha / sqrt(t) = 0.058 above -1.
            yield at_most("last point of a converging method", end, -0.94, tol=0.0, C=C,
                          method=method)  # fmt: skip
        yield equals("last point of Adam", last_round("Adam", C, rounds), 1.0, tol=1e-12, C=C)


adam_nonconvergence.foil("Adam converges on every convex problem", converging=("Adam",))
