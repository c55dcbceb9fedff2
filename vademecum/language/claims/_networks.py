"""What claims on networks share: drawn weights, changed tokens, copies of weights in torch's."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

__all__ = ["changes", "drawn", "torch_stack"]

Net = TypeVar("Net", bound=nn.Module)


def drawn(net: Net, scale: float = 0.5) -> Net:
    """The module with all parameters drawn anew, in evaluation mode, without gradients."""
    for p in net.parameters():
        nn.init.normal_(p, 0, scale)
    return net.eval().requires_grad_(False)


def changes(f: Callable[[Tensor], Tensor], tokens: Tensor, V: int, tol: float = 0.0) -> Tensor:
    """Which vectors t of f move by more than `tol` when token s of a row does: over s and t."""
    before, rows = f(tokens), []
    for s in range(len(tokens)):
        other = tokens.clone()
        other[s] = (other[s] + int(torch.randint(1, V, ()))) % V
        rows.append(((f(other) - before).abs() > tol).any(-1))
    return torch.stack(rows)


def torch_stack(
    blocks: list[dict[str, Tensor]], d: int, heads: int, hidden: int, **options: Any
) -> nn.TransformerEncoder:
    """Torch's encoder with the weights of blocks: qkv, out, inner, outer, norm1 and norm2."""
    layer = nn.TransformerEncoderLayer(d, heads, hidden, 0.0, batch_first=True, **options)
    net = nn.TransformerEncoder(layer, len(blocks), enable_nested_tensor=False)
    names = {"qkv": "self_attn.in_proj_", "out": "self_attn.out_proj.", "inner": "linear1.",
             "outer": "linear2.", "norm1": "norm1.", "norm2": "norm2."}  # fmt: skip
    state = {
        f"layers.{i}.{theirs}{kind}": block[f"{ours}.{kind}"]
        for i, block in enumerate(blocks)
        for ours, theirs in names.items()
        for kind in ("weight", "bias")
    }
    net.load_state_dict(state)
    return net.eval().requires_grad_(False)
