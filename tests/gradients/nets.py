"""Networks that between them use every layer's rule, and every way around the rules."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vademecum.models import SlowPathWarning


class Residual(nn.Module):
    """Skip connections, and an activation in place."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
        self.act = nn.ReLU(inplace=True)
        self.last = nn.Linear(5, 3)

    def forward(self, x):
        h = self.act(self.first(x))
        return self.last(h + torch.tanh(self.second(h)))


class ByHand(nn.Module):
    """A layer's weight is used once as a layer and once by hand."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 5)
        self.scale = nn.Linear(5, 3)

    def forward(self, x):
        return self.scale(torch.tanh(F.linear(self.layer(x), self.layer.weight)))


class OverTime(nn.Module):
    """Tokens, with time before the examples in the middle, as recurrent code likes it."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4, padding_idx=0)
        self.mix, self.out = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, tokens):
        h = self.embed(tokens).transpose(0, 1)
        return self.out(torch.tanh(self.mix(h)).mean(0))


class TwoInputs(nn.Module):
    """Called with keywords, one of which is no tensor."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(2, 3, bias=False)

    def forward(self, u, v, factor=1.0):
        return factor * torch.tanh(self.a(u)) * self.b(v)


class OneToken(nn.Module):
    """An embedding that is called with a single token, the same for all examples."""

    def __init__(self):
        super().__init__()
        self.token, self.out = nn.Embedding(3, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(torch.tanh(x + self.token(torch.tensor(2, device=x.device))))


class Mixed(nn.Module):
    """Parameters of two precisions, one of them without axes."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(5, 4).float(), nn.Linear(4, 3).double()
        self.scale = nn.Parameter(torch.tensor(1.5, dtype=torch.float32))

    def forward(self, x):
        return self.two(torch.tanh(self.one(x.float())).double()) * self.scale


def tied() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5), nn.Linear(5, 3))
    net[2].weight = net[0].weight
    return net


def twice() -> nn.Module:
    shared = nn.Linear(5, 5)
    return nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(5, 3))


def language(vocabulary: int = 7) -> nn.Module:
    net = nn.Sequential(
        nn.Embedding(vocabulary, 4), nn.LayerNorm(4), nn.Tanh(),
        nn.Linear(4, vocabulary, bias=False), nn.Flatten(), nn.Linear(35, 3),
    )  # fmt: skip
    net[3].weight = net[0].weight
    return net


def words() -> nn.Module:
    return nn.Sequential(nn.Embedding(7, 4, padding_idx=0), nn.Flatten(), nn.Linear(20, 3))


def norms() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding="same", dilation=2), nn.BatchNorm2d(4), nn.ReLU(),
        nn.GroupNorm(2, 4), nn.Flatten(2), nn.LayerNorm([4, 36]), nn.BatchNorm1d(4),
        nn.Linear(36, 5), nn.RMSNorm(5), nn.Flatten(), nn.Dropout(0.5), nn.Linear(20, 3),
        nn.BatchNorm1d(3),
    )  # fmt: skip


def planar() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
        nn.Tanh(), nn.Conv2d(4, 6, 2, padding="same", bias=False), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(12, 3),
    )  # fmt: skip


def along_a_line() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(2, 4, 3, padding="valid"), nn.ReLU(), nn.Conv1d(4, 2, 4, stride=2, padding=2),
        nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip


def in_space() -> nn.Module:
    return nn.Sequential(nn.Conv3d(1, 2, 2), nn.BatchNorm3d(2), nn.Flatten(), nn.Linear(16, 3))


def around() -> nn.Module:
    return nn.Sequential(nn.Conv1d(2, 2, 3, padding=1, padding_mode="circular"), nn.Flatten(),
                         nn.Linear(16, 3))  # fmt: skip


def attention() -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, 6, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(12, 3))


def recurrent() -> nn.Module:
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 3)

        def forward(self, x):
            return self.out(self.cell(x)[0][:, -1])

    return Last()


def floats(*shape: int):
    return lambda n: torch.randn(n, *shape, dtype=torch.float64)


def tokens(n: int):
    return torch.randint(7, (n, 5))


NETS = {  # how to make the network and n inputs, and whether the layers' rules cover it
    "residual": (Residual, floats(5), True),
    "tied": (tied, floats(5), True),
    "twice": (twice, floats(5), True),
    "time axis": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Flatten(), nn.Linear(9, 3)),
                  floats(3, 4), True),
    "two more axes": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Flatten(), nn.Linear(18, 3)),
                      floats(2, 3, 4), True),
    "language": (language, tokens, True),
    "words": (words, tokens, True),
    "norms": (norms, floats(2, 6, 6), True),
    "planar": (planar, floats(2, 6, 6), True),
    "along a line": (along_a_line, floats(2, 8), True),
    "in space": (in_space, floats(1, 3, 3, 3), True),
    "keywords": (TwoInputs, lambda n: {"v": floats(2)(n), "u": floats(4)(n), "factor": 2.0}, True),
    "tuple": (TwoInputs, lambda n: (floats(4)(n), floats(2)(n)), True),
    "two precisions": (Mixed, floats(5), True),
    "one token": (OneToken, floats(5), True),
    "by hand": (ByHand, floats(5), True),
    "time first": (OverTime, tokens, False),
    "around": (around, floats(2, 8), True),
    "attention": (attention, floats(3, 4), True),
    "recurrent": (recurrent, floats(3, 4), False),
}  # fmt: skip


def make(name: str, n: int = 5):
    """A network in double precision with random statistics, its inputs, and targets."""
    build, inputs, _ = NETS[name]
    net = build()
    if name != "two precisions":
        net.double()
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean = torch.randn_like(module.weight).detach()
            module.running_var = 0.5 + torch.rand_like(module.weight).detach()
    for p in net.parameters():  # or normalising layers would have scales of one
        p.data += 0.1 * torch.randn_like(p)
    return net, inputs(n), torch.randint(3, (n,))


def one(x, i: int):
    """The inputs of example `i`, as a batch of one."""
    if isinstance(x, dict):
        return {k: one(v, i) for k, v in x.items()}
    if isinstance(x, tuple):
        return tuple(one(v, i) for v in x)
    return x[i : i + 1] if isinstance(x, torch.Tensor) else x


def call(net: nn.Module, x):
    """The network's output in evaluation mode, as any user would get it."""
    net = net.eval()
    return net(**x) if isinstance(x, dict) else net(*x) if isinstance(x, tuple) else net(x)


def slowly(yes: bool):
    """Expect the warning of a slower way, or none."""
    return pytest.warns(SlowPathWarning, match="one example after the") if yes else nullcontext()


def close(name: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Insist that results for a network are equal up to rounding, by their largest entry.

    Each layer rounds once for every term of its longest sum: two layers of 5 terms where single
    precision is in play, else at most 13 layers of 144 terms; and that on both sides.
    """
    single = name == "two precisions"
    steps, dtype = (2 * 5, torch.float32) if single else (13 * 144, torch.float64)
    atol = 2 * steps * torch.finfo(dtype).eps * float(wanted.abs().max())
    torch.testing.assert_close(found, wanted, rtol=0, atol=atol)
