r"""Equal networks trained at once: their parameters stacked, one pass mapped over all of them.

The members share nothing, so the gradient of the sum of their losses in the stacked parameters is
the stack of their gradients, and an optimiser that treats every number by itself (AdamW) trains the
stack as it would train each member alone. What `torch.func.vmap` cannot map, such as batch
normalisation with its statistics, is trained one by one, and a warning says so.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from vademecum.arrays import portions
from vademecum.models._modules import named_modules
from vademecum.models.failures import cannot_be_mapped, warn_of_slow_path

__all__ = ["StackedMembers"]

_ROWS = 2**16  # examples times members that are predicted at a time


class StackedMembers:
    """Several networks of one kind, to train and to ask at once.

    Args:
        modules: The networks, which differ in their tensors alone; they are left as they are until
            `write_back`.
        outputs: How many numbers each of them gives for an example.

    Raises:
        ValueError: If they are of different kinds or have no parameters; when they are called, if
            they give something else.

    Example:
        >>> stack = StackedMembers([nn.Linear(2, 1) for _ in range(3)], outputs=1)
        >>> stack(torch.zeros(5, 2)).shape
        torch.Size([3, 5, 1])
    """

    def __init__(self, modules: list[nn.Module], *, outputs: int):
        kinds = {tuple((k, t.shape) for k, t in m.state_dict().items()) for m in modules}
        if len(kinds) > 1:
            raise ValueError("module must make networks of one kind, got different tensors")
        if not any(True for _ in modules[0].parameters()):
            raise ValueError("module must make networks with parameters, got none")
        self.modules, self.base, self.outputs = modules, modules[0], outputs
        self.parameters, self.buffers = stack_module_state(modules)  # pyright: ignore
        self.mapped = True
        self._refuse_statistics()

    def _refuse_statistics(self) -> None:
        for name, module in named_modules(self.base):
            if getattr(module, "running_mean", None) is not None:
                kind = f"{type(module).__name__} {name[:-1]!r}"
                self._go_one_by_one(f"vmap cannot keep the statistics of {kind}")

    def _go_one_by_one(self, reason: RuntimeError | str) -> None:
        warn_of_slow_path("members are trained and asked one by one", reason)
        self.mapped = False

    def __len__(self) -> int:
        return len(self.modules)

    def __call__(self, x: Tensor) -> Tensor:
        """What all members give for the same examples, in evaluation mode."""
        rows = portions(len(x), each=len(self), memory=_ROWS)
        self.base.eval()
        with torch.no_grad():
            return torch.cat([self._pass(x[here].expand(len(self), -1, -1)) for here in rows], 1)

    def losses(self, x: Tensor, y: Tensor, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """The members' losses, in training mode, each for examples of its own."""
        self.base.train()
        return vmap(loss)(self._pass(x), y)

    def _pass(self, x: Tensor) -> Tensor:
        z = self._each(x)
        if z.shape != (*x.shape[:2], self.outputs):
            shapes = f"({x.shape[1]}, {self.outputs}), got {tuple(z.shape[1:])}"
            raise ValueError(f"module must make networks with outputs of shape {shapes}")
        return z

    def _each(self, x: Tensor) -> Tensor:
        def call(parameters: Any, buffers: Any, x: Tensor) -> Tensor:
            return functional_call(self.base, (parameters, buffers), (x,))

        if self.mapped:
            try:
                return vmap(call, randomness="different")(self.parameters, self.buffers, x)
            except RuntimeError as error:
                if not cannot_be_mapped(error):
                    raise
                self._go_one_by_one(error)
        made = []
        for k in range(len(self)):
            parameters = {name: t[k] for name, t in self.parameters.items()}
            buffers = {name: t[k] for name, t in self.buffers.items()}
            made.append(call(parameters, buffers, x[k]))
        return torch.stack(made)

    def write_back(self) -> None:
        """Give the networks the tensors that were trained."""
        with torch.no_grad():
            for k, module in enumerate(self.modules):
                state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
                for name, tensor in {**self.parameters, **self.buffers}.items():
                    state[name].copy_(tensor[k])
                module.eval()
