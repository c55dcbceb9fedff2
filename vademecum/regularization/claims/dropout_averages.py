"""Dropout without sampling: rescaled weights, geometric means, and a ridge."""

from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, claim, equals
from vademecum.regularization import dropout_ensemble
from vademecum.regularization.claims.dropout import mask_law


class Unequal(nn.Module):
    """A linear map behind dropout with a rate of its own for each input, and perhaps a ReLU."""

    def __init__(self, W: Tensor, c: Tensor, keep: list[float], *, relu: bool = False):
        super().__init__()
        self.W, self.c, self.relu = W, c, relu
        self.drops = nn.ModuleList([nn.Dropout(1 - q) for q in keep])

    def forward(self, x: Tensor) -> Tensor:
        """Drop, column by column, and map."""
        columns = x.split(1, 1)
        left = torch.cat([f(t) for f, t in zip(self.drops, columns, strict=True)], 1)
        z = left @ self.W.T + self.c
        return z.relu() if self.relu else z


def kept_at_random(d: int) -> list[float]:
    """Probabilities of keeping, all different."""
    return (0.2 + 0.7 * (torch.randperm(d) + torch.rand(d)) / d).tolist()


Scaling = Literal["outgoing", "incoming", "inverse"]


def rescaled(W: Tensor, keep: list[float], scale: Scaling) -> Tensor:
    """The weights for evaluation."""
    q = torch.tensor(keep)
    if scale == "incoming":
        return q[: len(W), None] * W
    return W * q if scale == "outgoing" else W / q


@claim(
    by="identity",
    sources=("A-172", "B-345", "C-220"),
    budget=0.4,
    short=r"E_b[W (b \odot h) + c] = \tilde W h + c,\quad \tilde w_{ij} = \pi_j w_{ij}",
)
def dropout_rescaling(scale: Scaling = "outgoing"):
    r"""Evaluation replaces the average over masks by rescaled weights.

    Instead of averaging 10 to 20 sampled masks one pass is made with
    $\tilde w_{ij}^l = \pi_j^{l-1} w_{ij}^l$: the outgoing weights of unit $j$ times the probability
    that it is kept. For a linear layer that is the expected net input exactly; behind a ReLU it is
    not. Dividing by $\pi_j$ during training instead (inverted dropout, as torch has it) has the
    same effect.

    The expectation is linear. It is taken over all masks, written out and by `dropout_ensemble`,
    for layers that narrow and that widen. Behind $\max\{0, b_1 - b_2\}$, each kept at $\frac12$,
    the mean is $\frac14$ and the rescaled unit gives 0; inverted dropout doubles the mean.

    Knobs:
        scale: Which weights are multiplied by which probabilities: columns (outgoing) or rows
            (incoming); or columns are divided.
    """
    for d, m in ((6, 4), (3, 5)):
        keep, x = kept_at_random(max(d, m)), torch.randn(2, d)
        W, c, at = torch.randn(m, d), torch.randn(m), {"inputs": d, "outputs": m}
        used = keep[:d]
        plain, inverted = torch.zeros(2, m), torch.zeros(2, m)
        for b, chance in mask_law(used):
            left = x * torch.tensor(b)
            plain = plain + chance * (left @ W.T + c)
            inverted = inverted + chance * ((left / torch.tensor(used)) @ W.T + c)
        full = keep if scale == "incoming" else used
        evaluated = x @ rescaled(W, full, scale).T + c
        yield equals("net input with rescaled weights", evaluated, plain, tol=1e-12, **at)
        found = dropout_ensemble(Unequal(W, c, used), x, link="identity")
        yield equals("inverted dropout on average", inverted, x @ W.T + c, tol=1e-12, **at)
        yield equals("torch's dropout on average", found.arithmetic, inverted, tol=1e-12, **at)
        yield equals("torch in evaluation", found.rescaled, x @ W.T + c, tol=1e-13, **at)
        behind = Unequal(rescaled(W, full, scale), c, used)
        again = dropout_ensemble(behind, x, link="identity").arithmetic
        yield equals("inverted dropout of rescaled weights", again, plain, tol=1e-12, **at)
    W, x = torch.tensor([[1.0, -1.0]]), torch.ones(1, 2)
    bent = dropout_ensemble(Unequal(W, torch.zeros(1), [0.5, 0.5], relu=True), x)
    mean = sum(p * max(0, b[0] - b[1]) for b, p in mask_law([0.5, 0.5]))
    yield equals("mean behind a ReLU", mean, 0.25, tol=1e-15)
    yield equals("mean of torch behind a ReLU", bent.arithmetic, 2 * mean, tol=1e-15)
    yield equals("evaluation behind a ReLU", bent.rescaled, 0.0, tol=0.0)


dropout_rescaling.foil("divided by the probability at evaluation", scale="inverse")
dropout_rescaling.foil("incoming weights scaled, row by row", scale="incoming")


@claim(
    by="identity",
    sources=("B-346", "A-172", "C-220"),
    budget=0.4,
    short=r"\mathrm{softmax}(\tilde W x + c)_y \propto \prod_b p(y|x;b)^{p(b)}",
)
def dropout_geometric_mean(mean: Literal["geometric", "arithmetic"] = "geometric"):
    r"""Rescaled weights give the geometric mean of all subnetworks.

    For a softmax (or logistic) model that is linear in the dropped inputs, the prediction with
    rescaled weights equals the weighted geometric mean $\propto \prod_b p(y \mid x; b)^{p(b)}$ of
    the predictions of all subnetworks, normalised, exactly. In deeper networks it need not.

    Logarithms of softmax are linear up to a constant that normalisation takes away. The mean over
    all masks is written out, and is that of `dropout_ensemble`, for unequal probabilities of
    keeping and weights of size 3. For the logits $(\max\{0, 2 b_1 - 2 b_2\}, 0)$ at $\frac12$ the
    geometric mean has the log-odds $\frac12$, and evaluation has 0.

    Knobs:
        mean: Which mean of the subnetworks' predictions is taken.
    """
    for d, k in ((6, 4), (4, 2)):
        keep, x = kept_at_random(d), torch.randn(3, d)
        W, c, at = 3 * torch.randn(k, d), torch.randn(k), {"inputs": d, "classes": k}
        logs, sums = torch.zeros(3, k), torch.zeros(3, k)
        for b, chance in mask_law(keep):
            z = (x * torch.tensor(b)) @ W.T + c
            p = z.exp() / z.exp().sum(1, keepdim=True)
            logs, sums = logs + chance * p.log(), sums + chance * p
        product = logs.exp() / logs.exp().sum(1, keepdim=True)
        taken = product if mean == "geometric" else sums
        exact = ((x * torch.tensor(keep)) @ W.T + c).softmax(1)
        yield equals("prediction with rescaled weights", exact, taken, tol=1e-11, **at)
        found = dropout_ensemble(Unequal(W * torch.tensor(keep), c, keep), x)
        own = found.geometric if mean == "geometric" else found.arithmetic
        yield equals("mean of all networks", own, taken, tol=1e-11, **at)
        yield equals("evaluation", found.rescaled, own, tol=1e-11, **at)
        unit = Unequal(W[:1], c[:1], keep)
        one = dropout_ensemble(unit, x, link="sigmoid")
        own = one.geometric if mean == "geometric" else one.arithmetic
        yield equals("logistic unit", own, (x @ W[:1].T + c[:1]).sigmoid(), tol=1e-11, **at)
    W = torch.tensor([[1.0, -1.0], [0.0, 0.0]])
    bent = dropout_ensemble(Unequal(W, torch.zeros(2), [0.5, 0.5], relu=True), torch.ones(1, 2))
    assert bent.geometric is not None
    odds = (bent.geometric[:, 0] / bent.geometric[:, 1]).log()
    yield equals("log-odds of the geometric mean behind a ReLU", odds, 0.5, tol=1e-14)
    yield equals("evaluation behind a ReLU", bent.rescaled, 0.5, tol=1e-15)


dropout_geometric_mean.foil("the arithmetic mean", mean="arithmetic")


Penalty = Literal["columns", "plain"]


def minimiser(X: Tensor, y: Tensor, q: float, penalty: Penalty) -> Tensor:
    """The rescaled weights of least expected loss."""
    gram = X.T @ X
    own = gram.diag().diag() if penalty == "columns" else torch.eye(len(gram))
    return torch.linalg.solve(gram + (1 - q) / q * own, X.T @ y)


def expected_loss(X: Tensor, y: Tensor, w: Tensor, q: float) -> Tensor:
    """The squared error for inputs that are lost at random, over all masks of every example."""
    total = torch.zeros(())
    for b, chance in mask_law([q] * X.shape[1]):
        total = total + chance * (y - X @ (torch.tensor(b) * w)).square().sum()
    return total


@claim(
    by="identity",
    sources=("A-169", "B-343"),
    budget=0.5,
    short=r"E_b\|y-(B \odot X)w\|^2 = \|y-\pi Xw\|^2+\pi(1-\pi)\, w^\top\mathrm{diag}(X^\top X)w",
)
def dropout_ridge(penalty: Penalty = "columns", factor: Literal["q(1-q)", "1-q"] = "q(1-q)"):
    r"""Dropout of inputs is a ridge in the inputs' own scale, and best against lost inputs.

    For linear regression with every input kept with probability $\pi$, independently for each
    example, $\mathbb E_b \sum_n (y_n - x_n^\top (b_n \odot w))^2
    = \|y - \pi X w\|^2 + \pi (1 - \pi)\, w^\top \mathrm{diag}(X^\top X)\, w$. With $v = \pi w$ the
    minimiser is $v^* = (X^\top X + \frac{1 - \pi}{\pi} \mathrm{diag}(X^\top X))^{-1} X^\top y$, so
    its predictions do not change when columns are rescaled. No linear predictor does better when
    inputs are lost at that rate: in this sense dropping units makes it robust.

    Mean and variance of $x^\top (b \odot w)$, summed. The expectation is taken over all masks of
    every example, and again by the mean and variance that `dropout_ensemble` gives for torch's
    inverted dropout.

    Knobs:
        penalty: Whether the penalty has the columns' squared norms, or ones.
        factor: The factor before it.
    """
    scales = torch.tensor([1.0, 10.0, 0.1, 3.0, 100.0])
    for q, n, d in ((0.6, 7, 5), (0.8, 9, 3)):
        X, y, w, at = torch.randn(n, d), torch.randn(n), torch.randn(d), {"keep": q, "inputs": d}
        X[:, 0] *= 3
        own = X.square().sum(0) if penalty == "columns" else torch.ones(d)
        before = q * (1 - q) if factor == "q(1-q)" else 1 - q
        formula = (y - q * X @ w).square().sum() + before * (own * w * w).sum()
        yield equals("expected loss", expected_loss(X, y, w, q), formula, tol=1e-11, **at)
        model = nn.Sequential(nn.Dropout(1 - q), nn.Linear(d, 1, bias=False))
        model[1].weight.data = q * w[None]
        found = dropout_ensemble(model, X)
        torchs = ((y - found.arithmetic[:, 0]).square() + found.variance[:, 0]).sum()
        yield equals("expected loss of torch's dropout", torchs, formula, tol=1e-11, **at)
        best = minimiser(X, y, q, penalty) / q
        best.requires_grad_()
        least = expected_loss(X, y, best, q)
        (slope,) = torch.autograd.grad(least, best)
        yield equals("gradient at the minimiser", slope, 0.0, tol=1e-10, **at)
        plain = torch.linalg.lstsq(X, y[:, None]).solution[:, 0]
        others = [plain, plain / q, *(best.detach() + torch.randn(20, d))]
        losses = torch.stack([expected_loss(X, y, v, q) for v in others])
        yield at_least("expected loss of others", losses, least.detach(), **at)
        wide = X * scales[:d]
        scaled = wide @ minimiser(wide, y, q, penalty)
        yield equals("predictions after scaling columns", scaled, q * X @ best, tol=1e-10, **at)


dropout_ridge.foil("a plain ridge", penalty="plain",
                   refuted_by="predictions after scaling columns")  # fmt: skip
dropout_ridge.foil("the penalty of the weights that are not rescaled", factor="1-q",
                   refuted_by="expected loss")  # fmt: skip
