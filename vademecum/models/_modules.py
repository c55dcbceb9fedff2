"""The submodules of a module with their names, in time that does not grow with depth."""

from collections.abc import Iterator

from torch import nn

__all__ = ["named_modules"]


def named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """What `nn.Module.named_modules` gives, in its order, with a dot after each name but the first.

    Example:
        >>> [name for name, _ in named_modules(nn.Sequential(nn.Linear(1, 1), nn.ReLU()))]
        ['', '0.', '1.']
    """
    seen, ahead = set[int](), [("", model)]
    while ahead:
        prefix, module = ahead.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield prefix, module
        inner = module._modules
        if inner:
            ahead += [(f"{prefix}{k}.", m) for k, m in reversed(inner.items()) if m is not None]
