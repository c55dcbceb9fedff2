"""Automatic differentiation: forward mode and reverse mode."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.claims import claim, complex_step, equals
from vademecum.gradients import Tape, jvp, vjp

Value = tuple[float, tuple[float, ...]]

OPERATIONS: tuple[tuple[Callable[[Any, Any], Any], Callable[[float, float], Value]], ...] = (
    (lambda a, b: a + b, lambda a, b: (a + b, (1.0, 1.0))),
    (
        lambda a, b: a * torch.sin(b),
        lambda a, b: (a * math.sin(b), (math.sin(b), a * math.cos(b))),
    ),
    (lambda a, b: torch.sin(a), lambda a, b: (math.sin(a), (math.cos(a),))),
    (
        lambda a, b: torch.exp(torch.sin(a)),
        lambda a, b: (math.exp(math.sin(a)), (math.exp(math.sin(a)) * math.cos(a),)),
    ),
    (
        lambda a, b: torch.tanh(a * b),
        lambda a, b: (t := math.tanh(a * b), ((1 - t * t) * b, (1 - t * t) * a)),
    ),
)
"""Operations of two numbers for torch; and their values with their slopes, by hand."""


F = nn.functional
TENSORS: dict[str, Callable[[Any, Any], Any]] = {  # of a (3, 4) and b (4,)
    "quotients": lambda a, b: a / (1 + b * b) - 2 / (3 - (-a).exp()) + (1 + b.abs()).log() / 3,
    "powers": lambda a, b: (a**3 - a.square() * b) * (1 + a**2).sqrt() + (a - b).cos() ** 0,
    "units": lambda a, b: torch.relu(a - b) * a.sigmoid() + (1 - b).tanh() - (b - a).abs(),
    "sums": lambda a, b: a.sum(1, keepdim=True) * a - a.mean(0) * b.sum() + (a * b).mean((0, 1)),
    "extremes": lambda a, b: (
        a.amax(1) - (a * b).amax((0, 1)) * b.max() - a.logsumexp(0, True)[:, :3]
    ),
    "ties": lambda a, b: torch.cat([a, a, 2 * b.reshape(1, 4)]).amax(0) * b,
    "softmax": lambda a, b: a.softmax(1) * torch.log_softmax(a * b, 0),
    "places": lambda a, b: torch.cat([a[1:, ::2], a.T[:2, :2], b[[0, 0, 3, 1]].view(2, 2)], 1),
    "axes": lambda a, b: a.transpose(0, 1).flatten().reshape(2, 2, 3).permute(2, 0, 1) * b[:2],
    "matrices": lambda a, b: (a @ b) @ a + (a @ a.mT)[None] @ a.unsqueeze(0).squeeze(0) * b,
    "attention": lambda a, b: (
        F.scaled_dot_product_attention((a * b)[None], a[None], a[None] + 1, is_causal=True)
        + F.scaled_dot_product_attention(a[None], a[None], b * a[None], torch.eye(3), scale=2.0)
    ),
    "layer": lambda a, b: F.linear(a, a * b, b[:3]),
    "losses": lambda a, b: (
        F.cross_entropy(a * b, torch.tensor([2, 0, 2]))
        + F.cross_entropy(a, torch.tensor([1, 1, 3]), reduction="sum") * F.mse_loss(a[0], b)
    ),
    "convolution": lambda a, b: torch.conv1d(
        a.reshape(1, 2, 6), b.reshape(2, 1, 2), b[:2], stride=2, padding=1, groups=2
    ),
    "images": lambda a, b: torch.conv2d(a.reshape(1, 1, 3, 4), b.reshape(2, 1, 1, 2), b[2:]),
}
"""Programs of tensors, in which every operation of the tape occurs."""


class Program(NamedTuple):
    """A random expression graph with shared nodes, three inputs and two outputs."""

    kinds: list[int]
    places: list[list[int]]

    def __call__(self, x: Any) -> Any:
        """The outputs, with torch's operations."""
        v = [x[i : i + 1] for i in range(3)]
        for kind, (i, j) in zip(self.kinds, self.places, strict=True):
            v.append(OPERATIONS[kind][0](v[i], v[j]))
        return torch.cat([v[-1] + v[0], v[-1] * v[-2]])

    def adjoints(self, x: Tensor, u: Tensor, *, added: bool) -> Tensor:
        """The adjoints of the inputs in plain arithmetic: sums over uses, or the last of them."""
        v, slopes = x.tolist(), []
        for kind, (i, j) in zip(self.kinds, self.places, strict=True):
            value, partials = OPERATIONS[kind][1](v[i], v[j])
            v.append(value)
            slopes.append(partials)
        bar = [0.0] * len(v)

        def send(node: int, contribution: float) -> None:
            bar[node] = bar[node] + contribution if added else contribution

        first, second = u.tolist()
        for node, slope in ((-1, first), (0, first), (-1, second * v[-2]), (-2, second * v[-1])):
            send(node, slope)
        for k in reversed(range(len(self.kinds))):
            for node, slope in zip(self.places[k], slopes[k], strict=False):
                send(node, slope * bar[3 + k])
        return torch.tensor(bar[:3])


def random_program(steps: int) -> Program:
    """A program with this many operations, each of two nodes before it."""
    kinds = torch.randint(0, len(OPERATIONS), (steps,)).tolist()
    return Program(kinds, [torch.randint(0, 3 + k, (2,)).tolist() for k in range(steps)])


class Network(nn.Module):
    """A program as a module, so that a library for networks can differentiate it."""

    def __init__(self, program: Callable[[Tensor], Tensor]):
        super().__init__()
        self.program = program

    def forward(self, x: Tensor) -> Tensor:
        """What the program gives."""
        return self.program(x)


@claim(
    by="identity", sources=("A-095", "A-096", "B-157"), budget=1.0,
    full={"graphs": 200, "steps": 30},
    short=r"f(x + \dot x \epsilon) = f(x) + J \dot x\, \epsilon, \quad \epsilon^2 = 0",
)  # fmt: skip
def forward_mode(primal: bool = True, graphs: int = 8, steps: int = 8):
    r"""Forward-mode automatic differentiation.

    Forward mode evaluates a program, seen as a directed acyclic graph of elementary operations, on
    dual numbers $v + \dot v \epsilon$: tangents travel together with the primal values from inputs
    to outputs, and one pass gives one Jacobian-vector product. No separate backward pass and no
    stored tape are needed, but the primal values are: the tangent of $\sin v$ is $\cos(v)\,\dot v$.

    Knobs:
        primal: Whether tangents know the values; else local derivatives are taken as if all inputs
            were 0.
        graphs: How many random programs are drawn; the first three are also seen as networks.
        steps: How many operations a random program has.
    """
    for x in (0.5, 1.0):
        at = x if primal else 0.0
        square = Tape(lambda v: torch.sin(v * v), torch.tensor(x))
        name = r"tangent of $\sin(x^2)$ for $\dot x = 1$"
        yield equals(name, square.push(torch.tensor(1.0)).tangent, 2 * at * math.cos(at * at), x=x)
    for k in range(graphs):
        f, x, t = random_program(steps), torch.randn(3), torch.randn(3)
        stated, tape = complex_step(f, x if primal else torch.zeros(3), t), Tape(f, x)
        yield equals("tangent of a random program", tape.push(t).tangent, stated, graph=k)
        if k < 3:
            found = jvp(Network(f), x, t, wrt="x")
            yield equals("Jacobian-vector product of a random program", found, stated, graph=k)
    for name, f in TENSORS.items():
        points, moves = (torch.randn(3, 4), torch.randn(4)), (torch.randn(3, 4), torch.randn(4))
        found = Tape(f, *points).push(*moves)
        value, wanted = torch.func.jvp(f, points, moves)[:2]
        yield equals("value of a program of tensors", found.output, value, of=name)
        yield equals("tangent of a program of tensors", found.tangent, wanted, of=name)
    model, X = nn.Sequential(nn.Linear(3, 2), nn.Tanh()), torch.randn(4, 3)
    theta, v = torch.cat([p.detach().flatten() for p in model.parameters()]), torch.randn(8)
    values = lambda t: torch.tanh(X.to(t.dtype) @ t[:6].view(2, 3).T + t[6:])  # noqa: E731
    name = "Jacobian-vector product in the parameters of a network"
    yield equals(name, jvp(model, X, v), complex_step(values, theta, v))


forward_mode.erratum(
    "B-157",
    printed="For each parameter, compute the derivatives starting from the parameter (no forward "
    "pass here!)",
    right="What is avoided is a prior, stored forward pass: values and tangents go together.",
    why=r"The primal values are needed: the tangent of $\sin v$ is $\cos(v) \dot v$. What is"
    " avoided is a prior, stored forward pass; values and tangents are computed together.",
    weight="soft",
    refuted_by=r"tangent of $\sin(x^2)$ for $\dot x = 1$",
    primal=False,
)


@claim(
    by="identity", sources=("A-095", "A-097", "B-156"), budget=1.0,
    full={"graphs": 200, "steps": 30},
    short=r"\bar p = \sum_{p \to v} (\partial v / \partial p)^T \bar v, \quad \bar x = J^T \bar y",
)  # fmt: skip
def reverse_mode(added: bool = True, graphs: int = 8, steps: int = 8):
    r"""Reverse-mode automatic differentiation.

    Reverse mode first evaluates and records the graph, then propagates adjoints $\bar v =
    \partial f / \partial v$ from the output to the inputs, adding up the contributions of all uses
    of a node; one pass gives a whole vector-Jacobian product, and $\bar u^T (J \dot x) =
    (J^T \bar u)^T \dot x$. Backpropagation is the case of a scalar loss on a layered graph.

    Checked against complex steps and against the sweep written out in plain arithmetic.

    Knobs:
        added: Whether the contributions of all uses of a node are added up; else its adjoint is
            the last of them.
        graphs: How many random programs are drawn; the first three are also seen as networks.
        steps: How many operations a random program has.
    """
    x = torch.randn(3)
    found = Tape(lambda x: (x * x).sum(), x).pull().gradients[0]
    yield equals(r"gradient of $x \cdot x$", found, 2 * x if added else x)
    for k in range(graphs):
        f, x, t, u = random_program(steps), torch.randn(3), torch.randn(3), torch.randn(2)
        tape = Tape(f, x)
        found, wanted = tape.pull(u).gradients[0], complex_step(f, x).T @ u
        yield equals("adjoint of the inputs of a random program", found, wanted, graph=k)
        stated = f.adjoints(x, u, added=added)
        yield equals("adjoint of the inputs, against the sweep by hand", found, stated, graph=k)
        name, pushed = r"$(J^T \bar u)^T \dot x$ and $\bar u^T (J \dot x)$", tape.push(t).tangent
        yield equals(name, found @ t, u @ pushed, graph=k)
        if k < 3:
            found = vjp(Network(f), x, u, wrt="x")
            yield equals("vector-Jacobian product of a random program", found, wanted, graph=k)
    for name, f in TENSORS.items():
        points = torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)
        u = torch.randn((value := f(*points)).shape)
        found = Tape(f, *(p.detach() for p in points)).pull(u).gradients
        for which, g, wanted in zip(
            "ab", found, torch.autograd.grad(value, points, u), strict=True
        ):
            yield equals("adjoint of a program of tensors", g, wanted, of=name, input=which)
    model, X = nn.Sequential(nn.Linear(3, 2), nn.Tanh()), torch.randn(4, 3)
    theta, U = torch.cat([p.detach().flatten() for p in model.parameters()]), torch.randn(4, 2)
    risk = lambda t: (U * torch.tanh(X.to(t.dtype) @ t[:6].view(2, 3).T + t[6:])).sum()  # noqa: E731
    name = "vector-Jacobian product in the parameters of a network"
    yield equals(name, vjp(model, X, U), complex_step(risk, theta))


reverse_mode.foil(
    r"adjoints assigned, not added: $x \cdot x$ would have slope $x$",
    refuted_by=r"gradient of $x \cdot x$",
    added=False,
)
reverse_mode.foil(
    "adjoints assigned, not added, in programs with shared nodes",
    refuted_by="adjoint of the inputs, against the sweep by hand",
    added=False,
)
