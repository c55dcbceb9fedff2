"""Linear models with latent Gaussian factors: probabilistic PCA and factor analysis."""

from vademecum.generative.factors.factor_analysis import FactorAnalysis
from vademecum.generative.factors.probabilistic_pca import ProbabilisticPCA

__all__ = ["FactorAnalysis", "ProbabilisticPCA"]
