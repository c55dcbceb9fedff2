"""Operators and Krylov methods, information, probability, convexity: what the rest stands on.

A matrix with a million rows can still be *applied* to a vector, and that is enough: *Lanczos*'
method finds the ends of its spectrum after a handful of products, and the rest of it as a density.
*Concentration* says how far a mean strays from what it estimates, and with it how many examples are
enough. *Convexity* makes the nearest point of a set unique, and finding it a matter of a formula.
Entropy and divergences measure what an observation tells, and how wrong a belief is.
"""

from vademecum.foundations.bregman import bregman_divergence
from vademecum.foundations.change_of_measure import donsker_varadhan_bound
from vademecum.foundations.concentration import (
    chebyshev_bound,
    chebyshev_sample_size,
    hoeffding_bound,
    hoeffding_sample_size,
    markov_bound,
)
from vademecum.foundations.confidence import (
    ConfidenceInterval,
    clopper_pearson,
    clopper_pearson_sample_size,
)
from vademecum.foundations.conjugate_gradients import ConjugateGradients, cg
from vademecum.foundations.convexity import ConvexityViolation, convexity_violation
from vademecum.foundations.curvature_constants import (
    lipschitz_constant,
    smoothness_constant,
    strong_convexity_constant,
)
from vademecum.foundations.divergences import (
    js_distance,
    js_divergence,
    kl_divergence,
    total_variation,
)
from vademecum.foundations.entropies import cross_entropy, entropy
from vademecum.foundations.extreme_eigenvalues import Eigenpairs, eigsh
from vademecum.foundations.gaussians import (
    Gaussian,
    gaussian_condition,
    gaussian_kl,
    gaussian_marginal,
    gaussian_mle,
)
from vademecum.foundations.huffman import HuffmanCode, huffman_code
from vademecum.foundations.information import mutual_information
from vademecum.foundations.information_estimators import (
    InformationEstimate,
    entropy_from_counts,
    mutual_information_from_counts,
)
from vademecum.foundations.joint_tables import (
    bayes_posterior,
    conditional,
    is_independent,
    marginal,
)
from vademecum.foundations.lanczos_quadrature import SpectralDensity, log_det, spectral_density
from vademecum.foundations.minors import leading_minors, principal_minors
from vademecum.foundations.norms import DualNorm, dual_norm
from vademecum.foundations.operators import LinearOperator, aslinearoperator
from vademecum.foundations.power_method import PowerIteration, power_iteration
from vademecum.foundations.projections import project
from vademecum.foundations.pushforward import Pushforward, pushforward_density
from vademecum.foundations.quadratic_forms import Definiteness, definiteness
from vademecum.foundations.regions import Ball, Box, Region
from vademecum.foundations.score_function import score_function_gradient
from vademecum.foundations.steepest import DifferenceQuotient
from vademecum.foundations.stochastic_trace import ProbeEstimate, diagonal, trace

__all__ = [
    # operators and Krylov methods
    "LinearOperator", "aslinearoperator",
    "ConjugateGradients", "Eigenpairs", "PowerIteration", "cg", "eigsh", "power_iteration",
    "ProbeEstimate", "SpectralDensity", "diagonal", "log_det", "spectral_density", "trace",
    # information
    "cross_entropy", "entropy", "js_distance", "js_divergence", "kl_divergence",
    "mutual_information", "total_variation",
    "InformationEstimate", "donsker_varadhan_bound", "entropy_from_counts",
    "mutual_information_from_counts", "score_function_gradient",
    "HuffmanCode", "huffman_code",
    # probability
    "bayes_posterior", "conditional", "is_independent", "marginal",
    "Pushforward", "pushforward_density",
    "Gaussian", "gaussian_condition", "gaussian_kl", "gaussian_marginal", "gaussian_mle",
    # concentration
    "chebyshev_bound", "chebyshev_sample_size", "hoeffding_bound", "hoeffding_sample_size",
    "markov_bound",
    "ConfidenceInterval", "clopper_pearson", "clopper_pearson_sample_size",
    # convexity and norms
    "Definiteness", "definiteness", "leading_minors", "principal_minors",
    "DualNorm", "dual_norm", "project",
    "Ball", "Box", "Region",
    "ConvexityViolation", "bregman_divergence", "convexity_violation",
    "DifferenceQuotient", "lipschitz_constant", "smoothness_constant", "strong_convexity_constant",
]  # fmt: skip
