"""PyTorch: tensors, modules, losses and the training loop."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.claims import at_most, claim, equals
from vademecum.tooling.claims.arrays import whole
from vademecum.tooling.claims.language import raises

REFUSED = (RuntimeError, ValueError, TypeError)


@claim(
    by="identity", sources=("A-430", "A-431"), budget=0.5,
    short=r"\mathtt{torch.mm(A, B)} = A B, \quad \mathtt{A.t()} = A^T",
)  # fmt: skip
def torch_mm_transpose(product: Callable[[Tensor, Tensor], Tensor] = torch.mm):
    r"""torch.mm and transposition.

    `torch.mm(A, B)` multiplies two matrices and does not broadcast (use `matmul` or `@` otherwise);
    `A.t()` transposes tensors of at most two axes, `torch.transpose(A, d0, d1)` swaps any two axes.

    Knobs:
        product: What is taken for `torch.mm`.
    """
    a, b = whole(3, 4), whole(4, 2)
    left, right = (torch.tensor(m).double() for m in (a, b))
    wanted = (a @ b).astype(float)
    yield equals("product of two matrices", product(left, right), wanted, tol=0.0)
    batch, matrix, vector = torch.ones(5, 2, 3), torch.ones(3, 4), torch.arange(3.0)
    refused = raises(REFUSED, lambda: product(batch, matrix))
    yield equals("errors of mm with a tensor of three axes", refused, 1)
    refused = raises(REFUSED, lambda: product(vector, matrix))
    yield equals("errors of mm with a vector", refused, 1)
    shape = list(torch.matmul(batch, matrix).shape)
    yield equals("shape of matmul with a tensor of three axes", shape, [5, 2, 4])
    yield equals("A.t() of a matrix", left.t(), a.T.astype(float), tol=0.0)
    yield equals("A.t() of a vector", vector.t(), vector, tol=0.0)
    yield equals("errors of A.t() with three axes", raises(REFUSED, batch.t), 1)
    cube = whole(2, 3, 4)
    for axes in ((0, 2), (1, 2)):
        found = torch.transpose(torch.tensor(cube), *axes)
        yield equals("two axes swapped", found, cube.swapaxes(*axes), first=axes[0])


torch_mm_transpose.foil("`mm` does not broadcast as `matmul` does", product=torch.matmul)


class TwoLayers(nn.Module):
    """A linear layer as an attribute, and another one in a container."""

    def __init__(self, container: Callable[[list[nn.Module]], Iterable[nn.Module]]):
        super().__init__()
        self.first = nn.Linear(10, 4)
        self.others = container([nn.Linear(4, 4)])

    def forward(self, x: Tensor) -> Tensor:
        """Apply both."""
        for layer in (self.first, *self.others):
            x = layer(x)
        return x


@claim(
    by="identity", sources=("A-432", "A-433", "A-434"), budget=0.5,
    short=r"\mathtt{nn.Linear(n_{in}, n_{out})}: \quad y = x W^T + b, \quad"
    r" W \in \mathbb{R}^{n_{out} \times n_{in}}",
)  # fmt: skip
def torch_linear_module(
    weight: Literal["W^T", "W"] = "W^T",
    output_first: bool = True,
    container: Callable[[list[nn.Module]], Iterable[nn.Module]] = nn.ModuleList,
):
    r"""Modules, the linear layer and the forward call.

    Subclasses of `torch.nn.Module` register parameters and submodules that are assigned as
    attributes (not those hidden in plain lists); `nn.Linear(n_in, n_out)` computes
    $y = x W^\top + b$ with a weight of shape (n_out, n_in); `model(x)` runs `forward` with the
    batch on the first axis.

    Knobs:
        weight: What the input is multiplied by; $W$ itself only where it is square.
        output_first: Whether the shape of the weight is (n_out, n_in), and not (n_in, n_out).
        container: What holds the second layer of a model.
    """
    for n_in, n_out in ((4, 4), (10, 4)):
        linear, x, at = nn.Linear(n_in, n_out), torch.randn(7, n_in), {"n_in": n_in, "n_out": n_out}
        W, b = linear.weight, linear.bias
        rows = n_out if output_first else n_in
        yield equals("rows of the weight", W.shape[0], rows, **at)
        names = {name for name, _ in linear.named_parameters()}
        yield equals("parameters beside weight and bias", len(names ^ {"weight", "bias"}), 0, **at)
        stated = x @ (W if weight == "W" and n_in == n_out else W.T) + b
        yield equals("output of the linear layer", linear(x), stated, tol=1e-12, **at)
    model = TwoLayers(container)
    names = {name for name, _ in model.named_parameters()}
    expected = {"first.weight", "first.bias", "others.0.weight", "others.0.bias"}
    yield equals("parameters missing from the model", len(names ^ expected), 0)
    x = torch.randn(3, 10)
    yield equals("shape of the output for one example", list(model(x[:1]).shape), [1, 4])
    yield equals("model(x), against forward", model(x), model.forward(x), tol=0.0)
    alone = torch.cat([model(row) for row in x.split(1)])
    yield equals("outputs of a batch, against one example at a time", model(x), alone, tol=1e-12)


torch_linear_module.foil(r"$x W$ without the transposition", weight="W")
torch_linear_module.foil("the weight is not of shape (n_in, n_out)", output_first=False)
torch_linear_module.foil("a layer in a plain list is not registered", container=list)


@claim(by="identity", sources=("A-435", "A-436"), budget=0.5)
def torch_activations_and_loss(swap: bool = False, scale: float = 1.0):
    r"""Functional activations and the argument order of losses.

    `F.relu`, `torch.sigmoid` and `torch.tanh` are $\max(0, x)$, $\frac{1}{1 + e^{-x}}$ and
    $\tanh x$. A criterion is called as `criterion(output, target)`, prediction first:
    `CrossEntropyLoss` takes logits and class indices, `KLDivLoss` takes log-probabilities and
    probabilities, and computes $\mathrm{KL}(\text{target} \| \text{output})$. (`MSELoss` is
    symmetric and would not tell.)

    Knobs:
        swap: Whether the target comes first.
        scale: What the argument of the activations is multiplied by in the formulas.
    """
    x = 60 * torch.rand(50) - 30
    points = (scale * x).tolist()
    yield equals("F.relu", F.relu(x), [max(0.0, v) for v in points], tol=1e-12)
    logistic = torch.tensor([1 / (1 + math.exp(-v)) for v in points])
    ratio = torch.sigmoid(x) / logistic  # values go down to 1e-13
    yield equals("torch.sigmoid, in units of the logistic function", ratio, 1.0, tol=1e-12)
    yield equals("torch.tanh", torch.tanh(x), [math.tanh(v) for v in points], tol=1e-12)

    def called(criterion: nn.Module, output: Tensor, target: Tensor) -> Any:
        return criterion(target, output) if swap else criterion(output, target)

    p, q = torch.tensor([[0.9, 0.1], [0.5, 0.5]])
    divergence = 0.9 * math.log(1.8) + 0.1 * math.log(0.2)
    summed = nn.KLDivLoss(reduction="sum")
    found = summed(p.log(), q) if swap else summed(q.log(), p)
    yield equals("KLDivLoss of the target (0.9, 0.1) and the output (0.5, 0.5)", found, divergence)
    z, c = torch.randn(6, 4), torch.randint(4, (6,))
    refused = raises(REFUSED, lambda: called(nn.CrossEntropyLoss(), z, c))
    yield equals("errors of CrossEntropyLoss", refused, 0)
    reversed_order = raises(REFUSED, lambda: nn.CrossEntropyLoss()(c, z))
    yield equals("errors of CrossEntropyLoss, target first", reversed_order, 1)
    if not refused:
        pairs = zip(z.tolist(), c.tolist(), strict=True)
        terms = [math.log(sum(math.exp(v) for v in row)) - row[k] for row, k in pairs]
        found = called(nn.CrossEntropyLoss(), z, c)
        yield equals("CrossEntropyLoss", found, sum(terms) / 6, tol=1e-12)


torch_activations_and_loss.foil(
    "target first: 0.5108 instead of 0.3681",
    refuted_by="KLDivLoss of the target (0.9, 0.1) and the output (0.5, 0.5)",
    swap=True,
)
torch_activations_and_loss.foil(
    "target first: an error", refuted_by="errors of CrossEntropyLoss", swap=True
)
torch_activations_and_loss.foil("activations of twice the argument", scale=2.0)


def squared(w: Tensor) -> Tensor:
    """A loss whose gradient is 8 at w = 1.5."""
    return (2 * w - 1) ** 2


@claim(by="identity", sources=("A-437", "A-438", "A-439"), budget=0.5)
def torch_training_loop(zero: bool = True, proportional: bool = False, steps: int = 300):
    r"""Backward, step and the training loop.

    Each iteration runs `optimizer.zero_grad()`, `loss = criterion(model(x), y)`, `loss.backward()`
    (which fills `.grad` by reverse-mode differentiation, adding to what is there) and
    `optimizer.step()` (the only call that changes parameters). The first step of
    `torch.optim.Adam(params, lr)` moves each parameter by `lr` against the sign of its gradient
    (up to eps).

    *Adam.* After one step $\hat m = g$ and $\hat v = g^2$, so the step is
    $-\mathrm{lr}\, g / (|g| + \varepsilon)$ with $\varepsilon = 10^{-8}$: off by a relative
    $10^{-5}$ at most for $|g| \ge 10^{-3}$.

    *The loop.* For $y = 2 x + 1$ at points with mean 0 and mean square $s \approx 0.35$, a step of
    size 0.3 shrinks the error of the weight by $1 - 0.6 s$ and that of the bias by 0.4, so a
    step multiplies the loss by 0.62 at most.

    Knobs:
        zero: Whether gradients are set to zero before each backward pass.
        proportional: Whether Adam's first step is proportional to the gradient.
        steps: How many steps of gradient descent a linear model is given.
    """
    w = torch.tensor(1.5, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    for i in (1, 2):
        if zero:
            optimizer.zero_grad()
        squared(w).backward()
        yield equals("gradient of $(2 w - 1)^2$ at $w = 1.5$", w.grad, 8.0, backward=i)
    yield equals("parameter before the step", w, 1.5, tol=0.0)
    squared(w).backward()
    yield equals("gradient after one more backward pass", w.grad, 16.0)  # added to what was there
    optimizer.step()
    yield equals("parameter after a step of size 0.1", w, 1.5 - 0.1 * 16)
    g = torch.tensor([1e-3, -0.5, 40.0, -1e6])
    theta = torch.zeros(4, requires_grad=True)
    adam = torch.optim.Adam([theta], lr=0.01)
    (g * theta).sum().backward()
    adam.step()
    direction = g if proportional else g / (g.abs() + 1e-8)
    yield equals("first step of Adam", theta, -0.01 * direction, tol=1e-12)
    off = (theta / (-0.01 * g.sign()) - 1).abs()
    yield at_most("relative distance of Adam's first step from lr", off, 1e-5, tol=1e-12)
    model, x = nn.Linear(1, 1), torch.linspace(-1, 1, 32)[:, None]
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.3), nn.MSELoss()
    for _ in range(steps):
        optimizer.zero_grad()
        criterion(model(x), 2 * x + 1).backward()
        optimizer.step()
    # weight and bias begin within 1 of zero, so that the loss begins below 9 s + 4 < 8
    s, loss = float(x.square().mean()), criterion(model(x), 2 * x + 1)
    bound = max(8 * (1 - 0.6 * s) ** (2 * steps), 1e-28)
    yield at_most("log of the loss after training", loss.log(), math.log(bound), steps=steps)


torch_training_loop.foil("without `zero_grad` the second gradient is a sum, 16", zero=False)
torch_training_loop.foil("Adam's first step is not proportional", proportional=True)
