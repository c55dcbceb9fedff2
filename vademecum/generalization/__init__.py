"""Why networks generalise: capacity, bounds that cover, and the landscape of the loss.

*Capacity* counts what a class of functions can fit; *PAC-Bayes* bounds the risk of a network whose
weights are drawn afresh, with numbers below 1; *double descent* and memorisation show what counting
misses; the *landscape* is what minima look like: sharpness, connections, tickets.
"""

from vademecum.generalization.corruptions import (
    PermutedPixels,
    RandomLabels,
    permute_pixels,
    random_labels,
)
from vademecum.generalization.error_decomposition import BiasVariance, bias_variance
from vademecum.generalization.hessian_signs import HessianTest, classify_critical_point
from vademecum.generalization.interpolation_threshold import (
    DoubleDescent,
    double_descent,
    double_descent_risk,
    draw_double_descent,
)
from vademecum.generalization.kl_inversion import kl_inverse
from vademecum.generalization.memorisation import memorising_network
from vademecum.generalization.pac_bayes_forms import pac_bayes_bound

__all__ = [
    # bounds
    "kl_inverse", "pac_bayes_bound",
    # bias, variance, double descent
    "BiasVariance", "DoubleDescent", "bias_variance", "double_descent", "double_descent_risk",
    "draw_double_descent",
    # memorising
    "PermutedPixels", "RandomLabels", "memorising_network", "permute_pixels", "random_labels",
    # critical points
    "HessianTest", "classify_critical_point",
]  # fmt: skip
