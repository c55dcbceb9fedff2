"""Learning by telling what belongs together from what does not."""

from vademecum.regularization.contrast.predictive_coding import (
    ContrastivePredictiveCoding,
    PredictiveCoding,
)
from vademecum.regularization.contrast.tiled_softmax import info_nce_loss

__all__ = ["ContrastivePredictiveCoding", "PredictiveCoding", "info_nce_loss"]
