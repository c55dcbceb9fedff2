"""Networks whose units are read in many ways."""

from torch import nn
from torch.nn import functional as F


class Tied(nn.Module):
    """Words in and out by one matrix, and a square layer that is used twice."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.turn = nn.Linear(4, 4)

    def forward(self, ids):
        h = self.words(ids)
        h = self.turn(self.turn(h).relu()).relu() + h
        return F.linear(h, self.words.weight)


class Squeezed(nn.Module):
    """A convolution whose channels are weighted by what they are on average."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.down, self.up = nn.Linear(6, 2), nn.Linear(2, 6)
        self.each = nn.Conv2d(6, 6, 3, groups=6, padding="same")
        self.end = nn.Conv2d(6, 2, 1)

    def forward(self, x):
        z = self.norm(self.conv(x)).relu_()
        s = self.up(self.down(z.mean((2, 3))).relu()).sigmoid()
        z = self.each(z * s[:, :, None, None])
        z = F.max_pool2d(F.pad(z, (1, 1, 1, 1)), 2)[:, :, 1:]
        return self.end(z).flatten(1)


class Turned(nn.Module):
    """Axes that are turned, swapped, added, taken away and flattened."""

    def __init__(self):
        super().__init__()
        self.conv, self.mid, self.end = nn.Conv2d(3, 4, 3), nn.Linear(4, 5), nn.Linear(10, 2)

    def forward(self, x):
        z = self.mid(self.conv(x).relu().permute(0, 2, 3, 1)).relu().transpose(1, 3)
        z = F.adaptive_avg_pool2d(z[:, None][:, 0], (2, 1)).flatten(1)
        return self.end(z[:, :, None].flatten(1))


class Reading(nn.Module):
    """Units that are read by some function."""

    def __init__(self, function):
        super().__init__()
        self.one, self.two, self.function = nn.Linear(3, 4), nn.Linear(4, 2), function

    def forward(self, x):
        return self.two(self.function(self.one(x)))


def mlp(*activations):
    layers, d = [], 3
    for k, activation in enumerate(activations):
        layers += [nn.Linear(d, 4 + k), activation]
        d = 4 + k
    return nn.Sequential(*layers, nn.Linear(d, 2))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6), nn.LeakyReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Dropout(), nn.Linear(24, 5), nn.PReLU(5), nn.LayerNorm(5), nn.Linear(5, 2),
    )  # fmt: skip
