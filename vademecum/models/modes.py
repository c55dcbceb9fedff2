"""Evaluation mode for a while: batch normalisation by its statistics, dropout as the identity."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = ["evaluation"]


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while, with kernels that can be differentiated twice."""
    training = [module for module in model.modules() if module.training]
    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)]
    sparse = [module for module in embeddings if module.sparse]
    # cuDNN's recurrent layers have no backward pass in evaluation mode, and no second one ever.
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    enabled = torch.backends.cudnn.enabled
    try:
        torch.backends.cudnn.enabled = enabled and not recurrent
        for module in training:
            module.training = False
        for module in sparse:  # sparse gradients have no place in a vector
            module.sparse = False
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.cudnn.enabled = enabled
        for module in training:
            module.training = True
        for module in sparse:
            module.sparse = True
