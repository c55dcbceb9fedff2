r"""Captions: the decoder of a sequence model, started from the features of an image.

$$z = g(\text{image}), \qquad p(y^{1:S} \mid \text{image}) = \prod_t p(y^t \mid z, y^{1:t-1}) ,$$

with any network $g$ that gives features; the first state of the decoder is $\tanh(A z + a)$. Images
with the same features have the same law of captions. Checked by `recurrence.image_captioning`.

References:
    Vinyals, Toshev, Bengio and Erhan, Show and tell: a neural image caption generator, CVPR, 2015.
"""

import torch
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.recurrence.sequences._decoder import Cell, Decoder, Start
from vademecum.recurrence.sequences._output_model import Lengths, OutputModel

__all__ = ["CaptionModel"]


class CaptionModel(OutputModel):
    """A model of captions, given an image.

    Args:
        k: How many symbols a caption has, the end symbol among them.
        encoder: What maps images to features (n, features, ...), of which the mean over all axes
            beyond the second is taken; by default three convolutions of stride 2 with ReLUs.
        features: How many features the encoder gives.
        channels: How many channels images have, for the default encoder.
        dimension: The width of the embeddings.
        width: The width of the decoder.
        layers: How many layers it has.
        cell: Its kind.
        end: The symbol that ends a caption.

    Raises:
        ValueError: If a number is below 1, or the end symbol is not below k.

    Example:
        >>> model = CaptionModel(5, channels=1, features=8, dimension=4, width=6)
        >>> model(torch.zeros(2, 1, 16, 16), torch.tensor([[3, 1, 0], [2, 0, 0]])).shape
        torch.Size([2, 3, 5])
    """

    def __init__(
        self,
        k: int,
        *,
        encoder: nn.Module | None = None,
        features: int = 64,
        channels: int = 3,
        dimension: int = 64,
        width: int = 128,
        layers: int = 1,
        cell: Cell = "gru",
        end: int = 0,
    ):
        super().__init__()
        self.k, self.features = whole("k", k, low=1), whole("features", features, low=1)
        self.end = whole("end", end, low=0, high=k - 1)
        channels = whole("channels", channels, low=1)
        self.encoder = _small(channels, self.features) if encoder is None else encoder
        self.decoder = Decoder(k, dimension=whole("dimension", dimension, low=1), width=width,
                               layers=layers, cell=cell)  # fmt: skip
        parts = 2 if cell == "lstm" else 1
        self.first = nn.Linear(features, parts * layers * width)

    def _start(self, x: Tensor, lengths: Lengths) -> Start:
        if lengths is not None:
            raise ValueError("lengths must be None: images have none")
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim < 2 or not x.numel():
            given = f"{x.dtype}{list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"x must be images of floating-point numbers, got {given}")
        found = self.encoder(x)
        if found.ndim < 2 or found.shape[:2] != (len(x), self.features):
            wanted = f"({len(x)}, {self.features}, ...)"
            raise ValueError(f"features must have the shape {wanted}, got {tuple(found.shape)}")
        found = found.flatten(2).mean(2) if found.ndim > 2 else found
        rnn = self.decoder.rnn
        hidden = torch.tanh(self.first(found)).view(len(x), -1, rnn.num_layers, rnn.hidden_size)
        return Start(tuple(hidden.unbind(1)))


def _small(channels: int, features: int) -> nn.Module:
    """Three convolutions with He's initial weights: torch's own would shrink the signal tenfold."""
    layers: list[nn.Module] = []
    for old, new in ((channels, 16), (16, 32), (32, features)):
        conv = nn.Conv2d(old, new, 3, stride=2, padding=1)
        nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
        layers += [conv, nn.ReLU()]
    return nn.Sequential(*layers)
