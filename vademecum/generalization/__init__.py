"""Why networks generalise: capacity, bounds that cover, and the landscape of the loss.

*Capacity* counts what a class of functions can fit; *PAC-Bayes* bounds the risk of a network whose
weights are drawn afresh, with numbers below 1; *double descent* and memorisation show what counting
misses; the *landscape* is what minima look like: sharpness, connections, tickets.
"""

from vademecum.generalization.alignment import Alignment, align
from vademecum.generalization.connections import (
    ModeConnectivity,
    draw_mode_connectivity,
    mode_connectivity,
)
from vademecum.generalization.corruptions import (
    PermutedPixels,
    RandomLabels,
    permute_pixels,
    random_labels,
)
from vademecum.generalization.error_decomposition import BiasVariance, bias_variance
from vademecum.generalization.gibbs import gibbs_measure
from vademecum.generalization.growth import growth_function, sauer_bound
from vademecum.generalization.hessian_signs import HessianTest, classify_critical_point
from vademecum.generalization.interpolation_threshold import (
    DoubleDescent,
    double_descent,
    double_descent_risk,
    draw_double_descent,
)
from vademecum.generalization.kl_inversion import kl_inverse
from vademecum.generalization.memorisation import memorising_network
from vademecum.generalization.noise_fitting import RademacherComplexity, rademacher_complexity
from vademecum.generalization.norm_capacity import (
    LayerNorms,
    NormBound,
    NormBounds,
    norm_bounds,
)
from vademecum.generalization.pac_bayes_forms import pac_bayes_bound
from vademecum.generalization.planes import LossPlane, draw_loss_plane, loss_plane
from vademecum.generalization.random_weights import (
    PacBayesCertificate,
    RiskBounds,
    StochasticNetwork,
    draw_certificate,
    pac_bayes_certificate,
)
from vademecum.generalization.risk_gap import GeneralisationGap, generalisation_gap
from vademecum.generalization.scale_free_sharpness import SharpnessMeasures, sharpness_measures
from vademecum.generalization.shattering import Shattering, shatters
from vademecum.generalization.tickets import LotteryTicket, lottery_ticket
from vademecum.generalization.uniform_bounds import (
    finite_class_bound,
    rademacher_bound,
    vc_bound,
    vc_inequality,
)
from vademecum.generalization.vc_search import VCDimension, vc_dimension

__all__ = [
    # bounds
    "kl_inverse", "pac_bayes_bound", "gibbs_measure",
    "finite_class_bound", "rademacher_bound", "vc_bound", "vc_inequality",
    "GeneralisationGap", "generalisation_gap",
    # certificates of stochastic networks
    "PacBayesCertificate", "RiskBounds", "StochasticNetwork", "draw_certificate",
    "pac_bayes_certificate",
    # capacity
    "Shattering", "VCDimension", "growth_function", "sauer_bound", "shatters", "vc_dimension",
    "RademacherComplexity", "rademacher_complexity",
    "LayerNorms", "NormBound", "NormBounds", "norm_bounds",
    # bias, variance, double descent
    "BiasVariance", "DoubleDescent", "bias_variance", "double_descent", "double_descent_risk",
    "draw_double_descent",
    # memorising
    "PermutedPixels", "RandomLabels", "memorising_network", "permute_pixels", "random_labels",
    # critical points
    "HessianTest", "classify_critical_point",
    # landscape
    "LossPlane", "SharpnessMeasures", "draw_loss_plane", "loss_plane", "sharpness_measures",
    "Alignment", "ModeConnectivity", "align", "draw_mode_connectivity", "mode_connectivity",
    "LotteryTicket", "lottery_ticket",
]  # fmt: skip
