"""A classifier whose logits are multiplied by a number, and which autograd always accepts.

A model that is not differentiable in its input gets a gradient of zero instead of an error, so that
attacks run on it and can be seen to fail.
"""

from collections.abc import Callable

from torch import Tensor, nn

from vademecum.models import chosen_output

__all__ = ["PlainNetwork"]


class PlainNetwork(nn.Module):
    """The logits of a model times a number.

    Args:
        model: The module.
        preprocess: What stands between inputs and the model.
        scale: The number.
    """

    def __init__(
        self,
        model: nn.Module,
        preprocess: Callable[[Tensor], Tensor] | None = None,
        *,
        scale: float = 1.0,
    ):
        super().__init__()
        self.model, self.preprocess, self.scale = model, preprocess, scale

    def forward(self, x: Tensor) -> Tensor:
        """The logits, which depend on `x` as far as autograd can see."""
        z = chosen_output(self.model(x if self.preprocess is None else self.preprocess(x)))
        if not z.requires_grad and x.requires_grad:
            z = z + (0 * x.flatten(1)).sum(1, keepdim=True)
        return z * self.scale if self.scale != 1 else z
