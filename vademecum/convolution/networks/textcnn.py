r"""TextCNN: filters over a few words each, and the strongest answer of each filter.

A sentence is the matrix of its words' embeddings, $E \in \mathbb R^{L \times d}$. A filter of width
$K$ answers at each of the $L - K + 1$ places, and *max-over-time* pooling keeps the strongest
answer, wherever the phrase stands; the pooled answers of all widths, side by side, go into a linear
classifier. Checked by `convolution.textcnn` and `convolution.ngram_detection`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vademecum.arguments import floats, number, whole

__all__ = ["TextCNN"]


class TextCNN(nn.Module):
    """A classifier of sentences, from the numbers of their words to logits.

    Args:
        vocabulary: How many words there are.
        num_classes: How many logits there are.
        dimension: Of the embeddings.
        sizes: How many words the filters look at.
        width: How many filters of each size there are.
        dropout: The rate before the classifier.
        embeddings: Embeddings to begin with, a row a word.
        freeze: Whether the embeddings are held fixed.

    References:
        Kim, Convolutional neural networks for sentence classification, EMNLP, 2014.

    Example:
        >>> net = TextCNN(100, 3, dimension=8, width=4)
        >>> net(torch.zeros(2, 7, dtype=torch.long)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        vocabulary: int,
        num_classes: int = 2,
        *,
        dimension: int = 300,
        sizes: Sequence[int] = (2, 3, 4),
        width: int = 100,
        dropout: float = 0.5,
        embeddings: Float[Tensor, " vocabulary dimension"] | None = None,
        freeze: bool = False,
    ):
        super().__init__()
        whole("vocabulary", vocabulary, low=1)
        whole("dimension", dimension, low=1)
        whole("width", width, low=1)
        number("dropout", dropout, low=0, high=1)
        if not sizes:
            raise ValueError("sizes must name at least one size, got none")
        self.sizes = [whole("sizes", size, low=1) for size in sizes]
        self.embedding = nn.Embedding(vocabulary, dimension)
        if embeddings is not None:
            wanted, given = (vocabulary, dimension), tuple(floats("embeddings", embeddings).shape)
            if given != wanted:
                raise ValueError(f"embeddings must have the shape {wanted}, got {given}")
            with torch.no_grad():
                self.embedding.weight.copy_(embeddings)
        self.embedding.weight.requires_grad_(not freeze)
        self.filters = nn.ModuleList(nn.Conv1d(dimension, width, size) for size in self.sizes)
        self.dropout = nn.Dropout(dropout)
        classes = whole("num_classes", num_classes, low=1)
        self.classifier = nn.Linear(width * len(self.sizes), classes)

    def features(self, x: Int[Tensor, " n words"]) -> Float[Tensor, " n features"]:
        """The strongest answer of every filter, rectified, for each sentence."""
        if x.ndim != 2 or x.is_floating_point():
            raise ValueError(
                f"x must be numbers of words (n, length), got {x.dtype} of shape {tuple(x.shape)}"
            )
        if x.shape[1] < max(self.sizes):
            raise ValueError(
                f"x must have at least {max(self.sizes)} words, as the largest filter, got"
                f" {x.shape[1]}: pad it"
            )
        words = self.embedding(x).mT
        return torch.cat([torch.relu(f(words).amax(2)) for f in self.filters], 1)

    def forward(self, x: Int[Tensor, " n words"]) -> Float[Tensor, " n k"]:
        """The logits of each sentence."""
        return self.classifier(self.dropout(self.features(x)))
