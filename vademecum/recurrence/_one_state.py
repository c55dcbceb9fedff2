"""Networks whose state is one tensor, which is also what their outputs are read from."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.recurrence._sequences import insist_on_sequence, insist_on_step
from vademecum.recurrence.recurrent_outputs import RecurrentOutput

__all__ = ["OneState"]


class OneState(nn.Module):
    """The same map at every step, abstract: a network says how steps go and outputs are read."""

    d: int
    V: nn.Parameter

    def _steps(self, x: Tensor, state: Tensor | None) -> Iterator[Any]:
        """What each step did, with its state `h`."""
        raise NotImplementedError

    def _read(self, z: Tensor) -> Tensor:
        """The outputs of states."""
        raise NotImplementedError

    def forward(
        self, x: Float[Tensor, " n T d"], state: Float[Tensor, " n m"] | None = None
    ) -> RecurrentOutput:
        """The outputs at all steps, and the last state.

        Args:
            x: The sequences.
            state: The states before the first step; zeros by default.
        """
        insist_on_sequence(x, self.d, self.V)
        states = [trace.h for trace in self._steps(x, state)]
        return RecurrentOutput(self._read(torch.stack(states, 1)), states[-1])

    def step(
        self, x: Float[Tensor, " n d"], state: Float[Tensor, " n m"] | None = None
    ) -> RecurrentOutput:
        """The outputs of one step, and the state after it.

        Args:
            x: The inputs of this step, one for each sequence.
            state: The states after the step before; zeros by default.
        """
        insist_on_step(x, self.d, self.V)
        (trace,) = self._steps(x[:, None], state)
        return RecurrentOutput(self._read(trace.h), trace.h)
