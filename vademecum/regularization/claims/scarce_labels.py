"""Few or uncertain labels: smoothed ones, inputs without, tasks together, pre-training."""

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.linear import PCA, RidgeRegression
from vademecum.regularization import MultiTask, MultiTaskLinear, SemiSupervisedGMM


def stated_gap(eps: float, K: int) -> float:
    """By how much the true class leads where the loss is least."""
    return math.log((1 - eps + eps / K) / (eps / K))


@claim(
    by="identity", sources=("A-177", "B-349"), budget=0.6,
    short=r"q = (1 - \epsilon) e_y + \epsilon / K:\quad"
    r" z_y - z_j = \log \frac{1 - \epsilon + \epsilon / K}{\epsilon / K}",
)  # fmt: skip
def label_smoothing(
    gap: Callable[[float, int], float] = stated_gap, hard: float = 0.0, draws: int = 1000
) -> Iterator[Evidence]:
    r"""Smoothed labels have a finite best logit gap, hard ones none.

    Soft targets $q = (1 - \epsilon) e_y + \frac\epsilon K \mathbf 1$ account for labels that may be
    wrong, and regularise: the cross-entropy is least at $p = q$, where the true class leads every
    other one by the finite gap $\log \frac{1 - \epsilon + \epsilon / K}{\epsilon / K}$. With hard
    labels, $\epsilon = 0$, it has no finite minimiser: while the true class leads, doubling all
    logits lowers it.

    torch's `label_smoothing` is compared with the formula; the gradient $p - q$ is that of torch.

    Knobs:
        gap: The gap, as a function of $\epsilon$ and $K$.
        hard: The $\epsilon$ of the labels that are called hard.
        draws: How many random logits are compared with the minimum.
    """
    for K, eps in ((3, 0.3), (10, 0.1), (4, 0.05)):
        at, y = {"K": K, "eps": eps}, torch.tensor([K - 2])
        q = torch.full((K,), eps / K)
        q[K - 2] += 1 - eps
        yield equals("sum of the targets", q.sum(), 1.0, tol=1e-15, **at)
        z = 3 * torch.randn(draws, K)
        p = z.exp() / z.exp().sum(1, keepdim=True)
        losses = F.cross_entropy(z, y.expand(draws), label_smoothing=eps, reduction="none")
        yield equals("loss", losses, -(p.log() @ q), tol=1e-12, **at)
        best = torch.zeros(1, K)
        best[0, K - 2] = gap(eps, K)
        best = (best + torch.randn(())).requires_grad_()  # a common constant has no effect
        least = F.cross_entropy(best, y, label_smoothing=eps)
        (slope,) = torch.autograd.grad(least, best)
        yield equals("gradient at the gap", slope, 0.0, tol=1e-14, **at)
        yield equals("least loss, the entropy of q", least, -(q.log() @ q), tol=1e-13, **at)
        yield at_least("loss of random logits", losses, least.detach(), tol=1e-13, **at)
        z = descended(K, y, eps)
        others = torch.cat([z[: K - 2], z[K - 1 :]])
        yield equals("gap by gradient descent", z[K - 2] - others, gap(eps, K), tol=1e-9, **at)
        top = torch.randn(draws, K)
        top[:, K - 2] = top.amax(1) + 0.1
        targets = y.expand(draws)
        once, twice = (F.cross_entropy(c * top, targets, label_smoothing=hard, reduction="none")
                       for c in (1.0, 2.0))  # fmt: skip
        yield at_most("loss of doubled logits, over that before", twice / once, 0.99, **at)


def descended(K: int, y: Tensor, eps: float) -> Tensor:
    """Where gradient descent from zero goes: the curvature is at most 1/2, so 2 is a safe step."""
    z = torch.zeros(1, K, requires_grad=True)
    for _ in range(400):
        (slope,) = torch.autograd.grad(F.cross_entropy(z, y, label_smoothing=eps), z)
        with torch.no_grad():
            z -= 2 * slope
    return z.detach()[0]


label_smoothing.foil("mass for every wrong class", gap=lambda e, K: math.log((1 - e) / e))
label_smoothing.foil("nothing for the true class", gap=lambda e, K: math.log((1 - e) * (K - 1) / e))
label_smoothing.foil("labels that are not hard", hard=0.1)


def mixture(n: int, d: int) -> tuple[Tensor, Tensor]:
    """Two round classes with means 1.5 and -1.5 along the first axis, in turn."""
    y = torch.arange(n) % 2
    x = torch.randn(n, d)
    x[:, 0] += 1.5 * (2 * y - 1)
    return x, y


def accuracy(means: Tensor, priors: Tensor) -> float:
    """That of the rule with these means, of two round classes, by the law of the inputs itself."""
    w = means[1] - means[0]
    b = (means[0].square().sum() - means[1].square().sum()) / 2 + (priors[1] / priors[0]).log()
    sides = torch.tensor([-1.0, 1.0])
    scores = (sides * 1.5 * w[0] + b) * sides / w.norm()
    return float(torch.special.ndtr(scores).mean())


def joint_likelihood(
    means: Tensor, priors: Tensor, x: Tensor, y: Tensor, more: Tensor, weight: float
) -> Tensor:
    """The objective by its formula, for variance 1."""

    def logs(v: Tensor) -> Tensor:
        square = (v[:, None] - means).square().sum(2)
        return priors.log() - square / 2 - v.shape[1] / 2 * math.log(2 * math.pi)

    return logs(x)[torch.arange(len(x)), y].sum() + weight * logs(more).exp().sum(1).log().sum()


@claim(
    by="sampling", sources=("B-351",), budget=0.9,
    short=r"\max_\theta \sum_{\text{lab}} \log p(x, y; \theta) + \sum_{\text{unlab}} \log p(x; "
    r"\theta)",
)  # fmt: skip
def semi_supervised(weight: float = 1.0, problems: int = 12) -> Iterator[Evidence]:
    r"""Inputs without labels help, through a generative model of them.

    With few labels add the log-likelihood of the unlabelled inputs and optimise both jointly,
    $\sum_{\mathrm{lab}} \log p(x, y; \theta) + \sum_{\mathrm{unlab}} \log p(x; \theta)$. EM never
    lowers this objective, and what it converges to is a stationary point. For two round Gaussians
    3 apart in 10 dimensions, 5 labels each and 1000 inputs without, the classifier is better than
    that of the labels alone, in mean (often so, at a higher cost than pre-training: quoted).

    `SemiSupervisedGMM` against the formula, its derivative by autograd, and the exact accuracy of
    the rule that it finds.

    Knobs:
        weight: The weight of the unlabelled inputs in the fit.
        problems: How many problems are drawn.
    """
    gains = []
    for k in range(problems):
        (x, y), (more, _) = mixture(10, 10), mixture(1000, 10)
        alone = SemiSupervisedGMM(covariance=1.0).fit(x, y)
        own = torch.stack([x[y == 0].mean(0), x[y == 1].mean(0)])
        yield equals("means of the labels alone", alone.means_, own, tol=1e-12)
        model = SemiSupervisedGMM(covariance=1.0, unlabelled_weight=weight, max_iter=60)
        model.fit(x, y, unlabelled=more)
        least = model.objective_.diff().min() if model.n_iter_ else torch.zeros(())
        yield at_least("gain of a step of EM", least, 0.0, tol=1e-9)
        gains.append(accuracy(model.means_, model.weights_) - accuracy(own, alone.weights_))
        if k < 2:
            yield from stationary(x, y, more, weight)
    # the mean gain is 0.05, and that of 12 problems varies by 0.007 (observed): 1/100 is far
    mean = math.fsum(gains) / problems
    yield at_least("mean gain in accuracy by unlabelled inputs", mean, 0.01, problems=problems)


def stationary(x: Tensor, y: Tensor, more: Tensor, weight: float) -> Iterator[Evidence]:
    """Where EM ends: the objective by its formula is what it says, and has no slope."""
    model = SemiSupervisedGMM(
        covariance=1.0, unlabelled_weight=weight, tol=1e-15, max_iter=400
    ).fit(x, y, unlabelled=more)
    means = model.means_.clone().requires_grad_()
    logits = model.weights_.log().requires_grad_()
    value = joint_likelihood(means, logits.softmax(0), x, y, more, 1.0)
    yield equals("joint objective", float(model.objective_[-1]) / len(more),
                 value.detach() / len(more), tol=1e-12)  # fmt: skip
    slopes = torch.autograd.grad(value, (means, logits))
    steepest = max(float(slope.abs().max()) for slope in slopes)
    yield at_most("slope of the joint objective, for each input", steepest / len(more), 0.0,
                  tol=1e-6)  # fmt: skip


semi_supervised.foil("unlabelled inputs of weight 0", weight=0.0,
                     refuted_by="mean gain in accuracy by unlabelled inputs")  # fmt: skip
semi_supervised.foil("unlabelled inputs counted half", weight=0.5, refuted_by="joint objective")


def tasks(t: int, n: int, d: int, noise: float, shared: bool) -> tuple[Tensor, ...]:
    """Examples of linear tasks, each with its own, and the true weights, 1/2 to 3/2 long."""
    W = torch.randn(t, d)
    if shared:
        W = torch.randn(t, 1).sign() * torch.randn(d).expand(t, d)
    W = W / W.norm(dim=1, keepdim=True) * (0.5 + torch.rand(t, 1))
    x, task = torch.randn(t * n, d), torch.arange(t).repeat_interleave(n)
    return x, (x * W[task]).sum(1) + noise * torch.randn(t * n), task, W


def errors(shared: bool, **sizes: float) -> tuple[float, float]:
    """The mean squared distance from the true weights: learnt together, and separately."""
    t, n, d = (int(sizes[k]) for k in ("t", "n", "d"))
    x, y, task, W = tasks(t, n, d, sizes["noise"], shared)
    joint = MultiTaskLinear(alpha=0.3, fit_intercept=False).fit(x, y, tasks=task).coef_
    alone = [
        RidgeRegression(alphas=1.0, fit_intercept=False).fit(x[task == k], y[task == k]).coef_
        for k in range(t)
    ]
    return tuple(float((v - W).square().sum(1).mean()) for v in (joint, torch.stack(alone)))  # type: ignore


@claim(
    by="sampling", sources=("B-353",), budget=0.9,
    short=r"f_t(x) = h_t(g(x)):\quad w_t = B^\top a_t,\ B \in \mathbb R^{r \times d}",
)  # fmt: skip
def multi_task(shared: bool = True, problems: int = 2) -> Iterator[Evidence]:
    r"""Tasks that share structure are learnt better together, others may not be.

    Several related tasks are learnt jointly through a shared representation. When the tasks really
    share structure this lowers the error of each at small sample sizes, and when they do not it can
    hurt: forty linear tasks in $\mathbb R^{12}$ with 6 examples each and weights on one line,
    against separate ridge regressions, and the same with weights in all directions. In a network
    the trunk is shared, and its gradient is the sum over tasks.

    `MultiTaskLinear` and `MultiTask`. Without noise the weights come out exactly. The ratios of
    errors are observed, 0.05 and 2.5; the bounds are far from both.

    Knobs:
        shared: Whether the tasks' weights lie on one line.
        problems: How many problems are drawn.
    """
    sizes = {"t": 40, "n": 6, "d": 12}
    for _ in range(problems):
        joint, alone = errors(shared, **sizes, noise=0.3)
        yield at_most("error learnt together, over separately", joint / alone, 0.5)
        joint, alone = errors(False, **sizes, noise=0.3)
        yield at_least("the same, of tasks without common structure", joint / alone, 1.0)
    x, y, task, W = tasks(15, 5, 7, 0.0, True)
    fit = MultiTaskLinear(alpha=1e-10, fit_intercept=False, tol=1e-20).fit(x, y, tasks=task)
    yield equals("weights without noise", fit.coef_, W, tol=1e-6)
    yield equals("tasks' answers", fit.predict(x, tasks=task), y, tol=1e-6)
    model: Any = MultiTask(nn.Linear(4, 3), {"a": nn.Linear(3, 2), "b": nn.Linear(3, 1)})
    x, weights = torch.randn(6, 4), {"a": 0.7, "b": -1.3}
    total = sum((w * model(x)[name].sin().sum() for name, w in weights.items()), torch.zeros(()))
    (found,) = torch.autograd.grad(total, model.trunk.weight)
    h = x @ model.trunk.weight.T + model.trunk.bias
    stated = torch.zeros_like(found)
    for name, w in weights.items():
        head = model.heads[name]
        back = w * (h @ head.weight.T + head.bias).cos() @ head.weight
        stated = stated + back.T @ x
    yield equals("gradient in the trunk, summed over tasks", found, stated, tol=1e-12)


multi_task.foil("tasks without common structure", shared=False)


def encoder(how: Literal["pre-trained", "random"], x: Tensor, r: int) -> Tensor:
    """Orthonormal rows: the principal directions of inputs without labels, or any."""
    if how == "pre-trained":
        return PCA(r).fit(x).components_
    return torch.linalg.qr(torch.randn(x.shape[1], r)).Q.T


@claim(
    by="sampling", sources=("A-178", "B-350", "B-352"), budget=0.9,
    short=r"\hat h = \arg\min_h \sum_{\text{few}} \ell(h(\hat g(x)), y),\quad \hat g \text{ "
    r"learnt without labels}",
)  # fmt: skip
def pretraining(
    how: Literal["pre-trained", "random"] = "pre-trained", problems: int = 8
) -> Iterator[Evidence]:
    r"""A representation learnt without labels makes few labels enough.

    Learn a representation on a task that costs nothing, whose targets are computed from the data
    themselves (the inputs, the relative position of patches, colours, motion, later states), then
    fit or fine-tune on the target task with few labels. Here: inputs in $\mathbb R^{50}$ with
    three directions of unit variance, in a random basis, and noise of deviation 1/2 across them; a
    linear target with noise 1/10; 2000 inputs without labels and 10 with. The pretext task is to
    reconstruct the inputs from three numbers, so the encoder is PCA. Least squares on its three
    outputs beats the shortest least-squares solution on raw inputs, in mean.

    The squared errors are exact, from the law of the inputs. They are 0.03 and 1 (observed).

    Knobs:
        how: Whether the encoder is learnt, or a random projection.
        problems: How many problems are drawn.
    """
    d, r, ratios = 50, 3, []
    for _ in range(problems):
        basis = torch.linalg.qr(torch.randn(d, d)).Q
        root = torch.full((d,), 0.5)
        root[:r] = 1.0
        w = F.normalize(torch.randn(r), dim=0) @ basis.T[:r]
        more = torch.randn(2000, d) * root @ basis.T
        x = torch.randn(10, d) * root @ basis.T
        y = x @ w + 0.1 * torch.randn(10)
        E = encoder(how, more, r)
        few = torch.linalg.lstsq(x @ E.T, y[:, None]).solution[:, 0] @ E
        raw = torch.linalg.pinv(x) @ y
        covariance = basis * root.square() @ basis.T
        few_error, raw_error = (float((v - w) @ covariance @ (v - w)) for v in (few, raw))
        ratios.append(few_error / raw_error)
        least = torch.linalg.eigvalsh(x @ covariance @ x.T)[0]
        yield at_least("rank of the few examples: least eigenvalue", least, 1e-6)
    ratio = math.exp(math.fsum(map(math.log, ratios)) / problems)
    yield at_most("error by the representation, over that on raw inputs", ratio, 0.5)


pretraining.foil("a random projection", how="random")
