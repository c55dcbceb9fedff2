"""What the course claims of PyTorch."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.claims import at_most, claim, equals
from vademecum.tooling.claims.arrays import integers
from vademecum.tooling.claims.language import raises


@claim(by="identity", sources=("A-430", "A-431"), budget=0.5)
def torch_mm_transpose(product: Callable[[Tensor, Tensor], Tensor] = torch.mm):
    r"""torch.mm and transposition.

    `torch.mm(A, B)` multiplies two matrices and does not broadcast (use `matmul` or `@` otherwise);
    `A.t()` transposes tensors of at most two axes, `torch.transpose(A, d0, d1)` swaps any two axes.
    """
    a, b = integers(3, 4), integers(4, 2)
    left, right = (torch.tensor(m).double() for m in (a, b))
    yield equals(product(left, right), (a @ b).astype(float), tol=0.0)
    batch, matrix, vector = torch.ones(5, 2, 3), torch.ones(3, 4), torch.ones(3)
    yield equals(raises(RuntimeError, lambda: product(batch, matrix)), 1)
    yield equals(raises(RuntimeError, lambda: product(vector, matrix)), 1)
    yield equals(torch.matmul(batch, matrix).shape, (5, 2, 4))
    yield equals(left.t(), a.T.astype(float), tol=0.0)
    yield equals(vector.t(), vector)
    yield equals(raises(RuntimeError, batch.t), 1)
    cube = integers(2, 3, 4)
    yield equals(torch.transpose(torch.tensor(cube), 0, 2), cube.swapaxes(0, 2))


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


@claim(by="identity", sources=("A-432", "A-433", "A-434"), budget=0.5)
def torch_linear_module(
    layer: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda x, w, b: x @ w.T + b,
    output_first: bool = True,
    container: Callable[[list[nn.Module]], Iterable[nn.Module]] = nn.ModuleList,
):
    r"""Modules, the linear layer and the forward call.

    Subclasses of `torch.nn.Module` register parameters and submodules that are assigned as
    attributes (not those hidden in plain lists); `nn.Linear(n_in, n_out)` computes
    $y = x W^\top + b$ with a weight of shape (n_out, n_in); `model(x)` runs `forward` with the
    batch on the first axis.
    """
    for n_in, n_out in ((4, 4), (10, 4)):
        linear, x = nn.Linear(n_in, n_out), torch.randn(7, n_in)
        shape = (n_out, n_in) if output_first else (n_in, n_out)
        yield equals(linear.weight.shape, shape, n_in=n_in)
        yield equals([name for name, _ in linear.named_parameters()] == ["weight", "bias"], 1)
        yield equals(linear(x), layer(x, linear.weight, linear.bias), tol=1e-12, n_in=n_in)
    model = TwoLayers(container)
    names = {name for name, _ in model.named_parameters()}
    expected = {"first.weight", "first.bias", "others.0.weight", "others.0.bias"}
    yield equals(len(names ^ expected), 0)
    x = torch.randn(3, 10)
    yield equals(model(x[:1]).shape, (1, 4))
    yield equals(model(x), model.forward(x))
    yield equals(model(x)[:1], model(x[:1]), tol=1e-12)


torch_linear_module.foil(r"$x W$ without the transposition", layer=lambda x, w, b: x @ w + b)
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
    """
    x = 60 * torch.rand(50) - 30
    points = (scale * x).tolist()
    yield equals(F.relu(x), [max(0.0, v) for v in points], tol=1e-12)
    yield equals(torch.sigmoid(x), [1 / (1 + math.exp(-v)) for v in points], tol=1e-12)
    yield equals(torch.tanh(x), [math.tanh(v) for v in points], tol=1e-12)

    def called(criterion: nn.Module, output: Tensor, target: Tensor) -> Any:
        return criterion(target, output) if swap else criterion(output, target)

    p, q = torch.tensor([[0.9, 0.1], [0.5, 0.5]])
    divergence = 0.9 * math.log(1.8) + 0.1 * math.log(0.2)
    summed = nn.KLDivLoss(reduction="sum")
    yield equals(summed(p.log(), q) if swap else summed(q.log(), p), divergence)
    z, c = torch.randn(6, 4), torch.randint(4, (6,))
    refused = raises(RuntimeError, lambda: called(nn.CrossEntropyLoss(), z, c))
    yield equals(refused, 0)
    yield equals(raises(RuntimeError, lambda: nn.CrossEntropyLoss()(c, z)), 1)
    pairs = zip(z.tolist(), c.tolist(), strict=True)
    terms = [math.log(sum(math.exp(v) for v in row)) - row[k] for row, k in pairs]
    yield equals(called(nn.CrossEntropyLoss(), z, c), sum(terms) / 6, tol=1e-12)


torch_activations_and_loss.foil("target first: 0.5108 instead of 0.3681, or an error", swap=True)
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
    """
    w = torch.tensor(1.5, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    for _ in range(2):
        if zero:
            optimizer.zero_grad()
        squared(w).backward()
        yield equals(w.grad, 8.0)
    yield equals(w, 1.5, tol=0.0)
    squared(w).backward()
    yield equals(w.grad, 16.0)  # added to what was there
    optimizer.step()
    yield equals(w, 1.5 - 0.1 * 16)
    g = torch.tensor([1e-3, -0.5, 40.0, -1e6])
    theta = torch.zeros(4, requires_grad=True)
    adam = torch.optim.Adam([theta], lr=0.01)
    (g * theta).sum().backward()
    adam.step()
    direction = g if proportional else g.sign()
    yield at_most((theta / (-0.01 * direction) - 1).abs(), 1e-5, tol=1e-12)
    model, x = nn.Linear(1, 1), torch.linspace(-1, 1, 32)[:, None]
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.3), nn.MSELoss()
    for _ in range(steps):
        optimizer.zero_grad()
        criterion(model(x), 2 * x + 1).backward()
        optimizer.step()
    yield at_most(criterion(model(x), 2 * x + 1), 1e-6, steps=steps)


torch_training_loop.foil("without `zero_grad` the second gradient is a sum, 16", zero=False)
torch_training_loop.foil("Adam's first step is not proportional", proportional=True)
