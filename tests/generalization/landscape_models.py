"""Small networks of many kinds, and data for them."""

import torch
from torch import nn
from torch.nn import functional as F

from vademecum.data import load
from vademecum.models import mlp


class Residual(nn.Module):
    """A stream that two blocks add to, with batch normalisation, and one readout."""

    def __init__(self, width=6):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "norm": nn.BatchNorm2d(width),
                "one": nn.Conv2d(width, width + 2, 3, padding=1, bias=False),
                "two": nn.Conv2d(width + 2, width, 3, padding=1),
            })
            for _ in range(2)
        )  # fmt: skip
        self.end = nn.Linear(width, 3)

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            norm, one, two = block.children()
            h = h + two(F.relu(one(norm(h))))
        return self.end(h.mean((2, 3)))


class Tied(nn.Module):
    """One square layer used twice, and a parameter that no gradient reaches."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.end = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.again = self.two
        self.one.bias.requires_grad_(False)

    def forward(self, x):
        return self.end(self.again(self.two(self.one(x).tanh()).tanh()).tanh())


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 5, 3), nn.BatchNorm2d(5), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(5, 7, 2), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(28, 3),
    )  # fmt: skip


def encoder():
    return nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)


def seeded(make, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = make()
        for name, buffer in model.named_buffers():  # statistics that are not the same for all
            if "running" in name:
                buffer.copy_(torch.rand_like(buffer) + 0.5)
        return model


MODELS = {
    "mlp": (lambda: mlp([4, 9, 6, 3]), (4,)),
    "convolutional": (convolutional, (1, 8, 8)),
    "residual": (Residual, (1, 8, 8)),
    "tied": (Tied, (5,)),
    "encoder": (encoder, (5, 8)),
}


def inputs(name, n=12, dtype=torch.float64):
    drawn = torch.randn(n, *MODELS[name][1], generator=torch.Generator().manual_seed(7))
    return drawn.to(dtype)


def digits():
    found = load("digits")
    return found.x.flatten(1).float(), found.y


def trained(seed, width, depth, x, y, passes=10):
    """A network after some passes over the data by Adam."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = mlp([x.shape[1], *[width] * depth, 10])
        steps = torch.optim.Adam(model.parameters(), 2e-3)
        for _ in range(passes):
            for some in torch.randperm(len(x)).split(64):
                steps.zero_grad()
                F.cross_entropy(model(x[some]), y[some]).backward()
                steps.step()
    return model


def state(model):
    return {k: v.clone() for k, v in model.state_dict().items()}


def same_state(model, before):
    now = model.state_dict()
    return list(now) == list(before) and all(torch.equal(now[k], v) for k, v in before.items())
