r"""A recurrent network whose outputs enter its state.

$$z^t = F(z^{t-1}, x^t, y^{t-1}), \qquad p(y^t = j \mid x^{1:t}, y^{1:t-1}) =
\operatorname{softmax}(C z^t + c)_j .$$

Without the third argument the state is a function of the inputs alone, and given these the outputs
are independent of each other; with it the product over $t$ can be any law that sees no future
input. $F$ is torch's tanh, GRU or LSTM cell on $[x^t; E y^{t-1}]$. Checked by
`recurrence.output_feedback`, `recurrence.teacher_forcing`.
"""

import torch
from torch import Tensor

from vademecum.arguments import whole
from vademecum.recurrence.sequences._decoder import Cell, Decoder, Start
from vademecum.recurrence.sequences._output_model import Lengths, OutputModel
from vademecum.recurrence.sequences._symbols import lengths_of, within

__all__ = ["FeedbackRNN"]


class FeedbackRNN(OutputModel):
    """A model of outputs, one for each step of the input, that is fed with the one before.

    Args:
        d: How many numbers an input has; 0 for a model of outputs alone, whose inputs have the
            shape (n, T, 0).
        m: The width of the state.
        k: How many classes an output has.
        cell: The kind of state.
        layers: How many recurrent layers there are.
        dimension: The width of the embedding of an output that is fed back; by default k.
        feedback: Whether outputs are fed back; if not, the outputs are independent given the input.
        end: The class that ends a sequence of outputs; None if all are as long as their inputs.

    Raises:
        ValueError: If a number is below 1, or there are neither inputs nor feedback.

    Example:
        >>> model = FeedbackRNN(2, 5, 3)
        >>> x, y = torch.zeros(4, 6, 2), torch.zeros(4, 6, dtype=torch.long)
        >>> model(x, y).shape
        torch.Size([4, 6, 3])
        >>> model.run(x, generator=torch.Generator().manual_seed(0)).outputs.shape
        torch.Size([4, 6])
    """

    def __init__(
        self,
        d: int,
        m: int,
        k: int,
        *,
        cell: Cell = "tanh",
        layers: int = 1,
        dimension: int | None = None,
        feedback: bool = True,
        end: int | None = None,
    ):
        super().__init__()
        self.d = whole("d", d, low=0 if feedback else 1)
        m, self.k = whole("m", m, low=1), whole("k", k, low=1)
        self.end = None if end is None else whole("end", end, low=0, high=self.k - 1)
        dimension = self.k if dimension is None else whole("dimension", dimension, low=1)
        dimension = dimension if feedback else 0
        self.decoder = Decoder(self.k, inputs=self.d, dimension=dimension, width=m, layers=layers,
                               cell=cell)  # fmt: skip

    @property
    def _aligned(self) -> bool:
        return True

    def _start(self, x: Tensor, lengths: Lengths) -> Start:
        if not isinstance(x, Tensor) or x.ndim != 3 or x.shape[2] != self.d or not x.shape[1]:
            given = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"x must have the shape (n, T, {self.d}), T >= 1, got {given}")
        own = self.decoder.logits.weight
        if x.dtype != own.dtype:
            raise ValueError(f"x must be {own.dtype}, as the parameters are, got {x.dtype}")
        inside = None
        if lengths is not None:
            inside = within(lengths_of(lengths, *x.shape[:2]), x.shape[1], x.device)
            x = torch.where(inside[:, :, None], x, 0)
        return Start(self.decoder.zeros(len(x)), x, inside=inside)
