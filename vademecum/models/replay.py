"""Steps that are taken many times: on CUDA devices captured once as a graph, and replayed.

A step of many small operations spends its time in starting them; a graph starts all of them at
once. The step must work in place, on tensors that stay where they are, and must not wait for the
device.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["Replay"]

_WARM_UPS = 3  # what torch's documentation asks for before a capture


class Replay:
    """A step that can be taken again and again; calling it takes one.

    Args:
        step: What works in place on its tensors. It may be run a few times at the beginning, after
            which its state is put back.
        state: The tensors that a step reads and changes, all on one device.

    Example:
        >>> x = torch.ones(2)
        >>> double = Replay(lambda: x.mul_(2), [x])
        >>> double()
        >>> double()
        >>> x
        tensor([4., 4.])
    """

    def __init__(self, step: Callable[[], object], state: Sequence[Tensor]):
        if not state:
            raise ValueError("state must name the tensors that a step changes, got none")
        self._step: Callable[[], object] = step
        if state[0].is_cuda:
            self._kept = step, [*state]  # a graph knows addresses, and keeps no tensor alive
            self._step = _captured(step, state)

    def __call__(self) -> None:
        """Take a step."""
        self._step()


def _captured(step: Callable[[], object], state: Sequence[Tensor]) -> Callable[[], object]:
    before = [tensor.clone() for tensor in state]
    with torch.cuda.device(state[0].device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
    for tensor, old in zip(state, before, strict=True):
        tensor.copy_(old)
    return graph.replay
