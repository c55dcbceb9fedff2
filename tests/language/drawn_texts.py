"""Calls of what draws random numbers in this room."""

from typing import Any

import torch
from torch import nn

from vademecum import language

Source = torch.Generator | None


def uniform() -> nn.Module:
    return nn.Embedding.from_pretrained(torch.zeros(50, 50))


def probed(generator: Source) -> Any:
    x = torch.linspace(-1, 1, 80).reshape(40, 2)
    model = nn.Sequential(nn.Identity(), nn.Tanh())
    return language.linear_probe(model, x, x[:, 0].sin() * x[:, 1] > 0.1, generator=generator)


CALLS = {
    "generate": lambda g: language.generate(uniform(), [3], max_new_tokens=9, generator=g),
    "stream_tokens": lambda g: [
        *language.stream_tokens(uniform(), [3], max_new_tokens=9, generator=g)
    ],
    "linear_probe": probed,
}
