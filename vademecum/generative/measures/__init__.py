"""How far samples are from data: distances of features, scores of labels, covered volume."""

from vademecum.generative.measures.frechet import FrechetDistance, frechet_distance
from vademecum.generative.measures.kernel_statistic import KernelDistance, kernel_distance
from vademecum.generative.measures.label_spread import InceptionScore, inception_score
from vademecum.generative.measures.moments import FeatureMoments, feature_moments
from vademecum.generative.measures.neighbourhoods import PrecisionRecall, precision_recall
from vademecum.generative.measures.slices import SlicedWasserstein, sliced_wasserstein

__all__ = [
    "FeatureMoments", "FrechetDistance", "InceptionScore", "KernelDistance", "PrecisionRecall",
    "SlicedWasserstein", "feature_moments", "frechet_distance", "inception_score",
    "kernel_distance", "precision_recall", "sliced_wasserstein",
]  # fmt: skip
