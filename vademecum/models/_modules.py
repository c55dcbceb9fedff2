"""The submodules of a module with their names, in time that does not grow with depth."""

from torch import nn

__all__ = ["Modules", "named_modules"]

Modules = list[tuple[str, nn.Module]]
"""Submodules with their names, as `named_modules` gives them."""


def named_modules(model: nn.Module | Modules) -> Modules:
    """What `nn.Module.named_modules` gives, in its order, with a dot after each name but the first.

    What it gave before it gives back, so that many questions take one walk.

    Example:
        >>> [name for name, _ in named_modules(nn.Sequential(nn.Linear(1, 1), nn.ReLU()))]
        ['', '0.', '1.']
    """
    if isinstance(model, list):
        return model
    seen, ahead, found = set[int](), [("", model)], Modules()
    while ahead:
        entry = ahead.pop()
        prefix, module = entry
        if id(module) in seen:
            continue
        seen.add(id(module))
        found.append(entry)
        inner = module._modules
        if inner:
            ahead += [(f"{prefix}{k}.", m) for k, m in reversed(inner.items()) if m is not None]
    return found
