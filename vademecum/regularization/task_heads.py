r"""One trunk, several heads: a network that learns tasks together.

$$f_t(x) = h_t(g(x)),$$

where the trunk $g$ is shared and each task $t$ has a head $h_t$ of its own. The trunk is computed
once for all heads; its gradient is the sum over tasks (the claim `multi_task`). Exact.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

__all__ = ["MultiTask"]


class MultiTask(nn.Module):
    """A trunk that several heads share.

    Args:
        trunk: The shared module.
        heads: The modules of the tasks by their names, each for what the trunk gives.

    Raises:
        ValueError: If there are no heads, or one has a name that `nn.ModuleDict` cannot hold.

    Example:
        >>> model = MultiTask(nn.ReLU(), {"same": nn.Identity(), "bounded": nn.Hardtanh()})
        >>> model(torch.tensor([[3.0]]))
        {'same': tensor([[3.]]), 'bounded': tensor([[1.]])}
        >>> model(torch.tensor([[-3.0]]), task="same")
        tensor([[0.]])
    """

    def __init__(self, trunk: nn.Module, heads: Mapping[str, nn.Module]):
        super().__init__()
        if not heads:
            raise ValueError("heads must hold at least one module, got none")
        for name in heads:
            plain = isinstance(name, str) and name and "." not in name
            if not plain or hasattr(nn.ModuleDict(), name):
                raise ValueError(f"heads must have names that nn.ModuleDict can hold, got {name!r}")
        self.trunk = trunk
        self.heads = nn.ModuleDict(heads)

    def forward(self, *args: Any, task: str | None = None, **kwargs: Any) -> Any:
        """The outputs of all heads by their names, or that of one task.

        Args:
            args: What the trunk takes.
            task: The one head to ask.
            kwargs: What the trunk takes by name.

        Raises:
            ValueError: If there is no such task.
        """
        if task is not None and task not in self.heads:
            raise ValueError(f"task must be one of {list(self.heads)}, got {task!r}")
        features = self.trunk(*args, **kwargs)
        if task is not None:
            return self.heads[task](features)
        return {name: head(features) for name, head in self.heads.items()}
