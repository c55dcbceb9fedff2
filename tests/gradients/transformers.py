"""Networks with parts of transformers, which share tensors between examples in many ways."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

T, D, V = 4, 6, 9


class Conv1D(nn.Module):
    """A linear layer whose weight lies the other way round, as GPT-2 has it."""

    def __init__(self, outputs: int, inputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return flat.view(*x.shape[:-1], -1)


class Attention(nn.Module):
    """Two heads, with a bias for the scores."""

    def __init__(self, make: type[nn.Module] = nn.Linear):
        super().__init__()
        self.q, self.k, self.v, self.out = (make(D, D) for _ in range(4))

    def forward(self, h: Tensor, bias: Tensor | float) -> Tensor:
        q, k, v = (f(h).unflatten(-1, (2, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = (q @ k.mT + bias).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Bert(nn.Module):
    """Positions are looked up once for all examples; padding is masked."""

    ids: Tensor

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(V, D, padding_idx=0)
        self.positions, self.types = nn.Embedding(7, D), nn.Embedding(2, D)
        self.register_buffer("ids", torch.arange(7)[None])
        self.norm, self.attention = nn.LayerNorm(D), Attention()
        self.head = nn.Linear(D, 3)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        h = self.words(tokens) + self.types(torch.zeros_like(tokens))
        h += self.positions(self.ids[:, : tokens.shape[1]])
        bias = (1 - mask[:, None, None, :].to(h.dtype)) * -1e9
        h = self.norm(h)
        return self.head((h + self.attention(h, bias))[:, 0])


class Gpt(nn.Module):
    """Transposed weights, a causal mask in a buffer, and a head that shares the embedding."""

    mask: Tensor

    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(V, D), nn.Embedding(7, D)
        self.norm, self.attention = nn.LayerNorm(D), Attention(Conv1D)
        self.register_buffer("mask", torch.ones(7, 7, dtype=torch.bool).tril())
        self.head = nn.Linear(D, V, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        t = tokens.shape[1]
        h = self.words(tokens) + self.positions(torch.arange(t, device=tokens.device))
        bias = torch.where(self.mask[:t, :t], 0.0, float("-inf")).to(h.dtype)
        return self.head(self.norm(h + self.attention(h, bias)))[:, -1, :3]


class Vit(nn.Module):
    """A class token, a table of positions, scales, all without a layer."""

    def __init__(self, expand):
        super().__init__()
        self.token, self.expand = nn.Parameter(torch.randn(1, 1, D)), expand
        self.positions = nn.Parameter(torch.randn(1, T + 1, D))
        self.scale, self.gain = nn.Parameter(torch.randn(D)), nn.Parameter(torch.tensor(2.0))
        self.attention, self.head = Attention(), nn.Linear(D, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.cat([self.expand(self.token, len(x)), x], 1) + self.positions
        return self.head((h + self.gain * self.scale * self.attention(h, 0.0))[:, 0])


class RootMeanSquare(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.out = nn.Parameter(torch.randn(D)), nn.Linear(D, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return self.out((self.weight * h).sum(1))


class Relative(nn.Module):
    """A bias of the scores that is computed once of an embedding, and serves two layers."""

    def __init__(self):
        super().__init__()
        self.bias, self.first, self.second = nn.Embedding(2 * T, 2), Attention(), Attention()
        self.out = nn.Linear(D, 3)

    def forward(self, x: Tensor) -> Tensor:
        i = torch.arange(x.shape[1], device=x.device)
        bias = self.bias(i[:, None] - i + T).permute(2, 0, 1)[None]
        h = x + self.first(x, bias)
        return self.out((h + self.second(h, bias)).mean(1))


class Torch(nn.Module):
    """torch's own layers, with padding, across two sequences, and with weights given back."""

    def __init__(self, **options):
        super().__init__()
        self.first = nn.TransformerEncoderLayer(D, 2, 8, batch_first=True)
        self.across = nn.MultiheadAttention(D, 2, **options)
        self.out = nn.Linear(D, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        h = self.first(x, src_key_padding_mask=mask == 0).transpose(0, 1)
        causal = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        z, weights = self.across(h.sin(), h, h, key_padding_mask=mask == 0, attn_mask=causal)
        return self.out((z.transpose(0, 1) + weights.sum(-1, keepdim=True)).mean(1))


class ByHand(nn.Module):
    """Functions of torch that have no rule, and products with matrices that no layer holds."""

    def __init__(self):
        super().__init__()
        self.slope, self.form = nn.PReLU(D), nn.Bilinear(D, D, 5)
        self.matrix, self.shift = nn.Parameter(torch.randn(5, D)), nn.Parameter(torch.randn(D))
        self.table, self.out = nn.Parameter(torch.randn(V, D)), nn.Linear(D, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.form(x[:, 0], x[:, 1]) @ self.matrix
        h = F.linear(self.slope(h), self.table.T @ self.table, self.shift)
        h = F.layer_norm(h, (D,), weight=self.shift) + self.table[(x[:, 0, :2] > 0).long()].sum(1)
        return self.out(h - self.shift[:, None].T)


def normalised():
    return nn.Sequential(weight_norm(nn.Linear(D, 5)), nn.Tanh(), nn.Flatten(), nn.Linear(5 * T, 3))


def permuted():
    class Permuted(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.out = nn.LayerNorm(T), nn.Linear(T, 3)

        def forward(self, x):
            return self.out(self.norm(x.mT).mT.mT.sum(1))

    return Permuted()


def floats(n):
    return torch.randn(n, T, D, dtype=torch.float64)


def tokens(n):
    return torch.randint(V, (n, T))


def lengths(n):
    return (torch.arange(T) < 1 + torch.randint(T, (n, 1))).long()


MODELS = {
    "bert": (Bert, lambda n: {"tokens": tokens(n), "mask": lengths(n)}),
    "gpt": (Gpt, tokens),
    "vit, expanded": (lambda: Vit(lambda t, n: t.expand(n, -1, -1)), floats),
    "vit, repeated": (lambda: Vit(lambda t, n: t.repeat(n, 1, 1)), floats),
    "vit, broadcast": (lambda: Vit(lambda t, n: torch.broadcast_to(t[0], (n, 1, D))), floats),
    "root mean square": (RootMeanSquare, floats),
    "relative": (Relative, floats),
    "torch": (Torch, lambda n: (floats(n), lengths(n))),
    "torch, own weights": (lambda: Torch(kdim=D, vdim=D), lambda n: (floats(n), lengths(n))),
    "torch, without bias": (lambda: Torch(bias=False), lambda n: (floats(n), lengths(n))),
    "by hand": (ByHand, floats),
    "normalised weight": (normalised, floats),
    "permuted": (permuted, floats),
}
