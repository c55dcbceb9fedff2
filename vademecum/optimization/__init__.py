"""Descent methods, what is proved of their speed, and the curvature that decides it.

*Gradient descent* walks downhill, and how fast it may walk is a matter of curvature: steps beyond
two over the largest curvature climb instead, and flat directions wait for steep ones. *Momentum*
remembers the way so far and shortens the wait to its square root. *Stochastic gradients* are cheap
and noisy: with a constant step the iterates end in a ball of noise, which shrinks with the step,
with averages, or with the variance itself. Where a theorem bounds the speed, a *certificate* holds
the bound beside the run.
"""

from vademecum.optimization.averaging import PolyakAveraging, averaged
from vademecum.optimization.backtracking import LineSearch, line_search
from vademecum.optimization.certificates import DescentCertificate, certify_descent, draw_descent
from vademecum.optimization.conditioning import (
    ConditionNumber,
    PLConstant,
    condition_number,
    pl_constant,
)
from vademecum.optimization.covariance_of_gradients import gradient_covariance
from vademecum.optimization.curvature_by_layer import (
    LayerCurvature,
    draw_layer_curvature,
    layer_curvature,
)
from vademecum.optimization.example_samplers import CurriculumSampler, ImportanceSampler
from vademecum.optimization.fisher_information import fisher
from vademecum.optimization.flow import GradientFlow, gradient_flow
from vademecum.optimization.generalised_gauss_newton import gauss_newton
from vademecum.optimization.graduated import Continuation, continuation
from vademecum.optimization.line_curvature import CriticalStep, critical_step
from vademecum.optimization.momentum import HeavyBall, Nesterov
from vademecum.optimization.muon import Muon
from vademecum.optimization.newton_cg import NewtonCG
from vademecum.optimization.noise_scale import GradientNoise, gradient_noise
from vademecum.optimization.orthogonal_factor import orthogonalize
from vademecum.optimization.parameter_split import MatrixParameters, matrix_parameters
from vademecum.optimization.projected import ProjectedSGD
from vademecum.optimization.sharpest_direction import Sharpness, sharpness
from vademecum.optimization.sharpness_tracking import (
    SharpnessHistory,
    SharpnessTracker,
    draw_sharpness,
)
from vademecum.optimization.sign_descent import SignSGD
from vademecum.optimization.step_schedules import RobbinsMonro, robbins_monro
from vademecum.optimization.total_curvature import CurvatureTrace, curvature_trace
from vademecum.optimization.variance_reduction import SVRG

__all__ = [
    # optimisers
    "SVRG", "HeavyBall", "Nesterov", "ProjectedSGD", "SignSGD", "PolyakAveraging", "averaged",
    "Muon", "NewtonCG",
    # steps, schedules, examples
    "Continuation", "GradientFlow", "LineSearch", "RobbinsMonro", "continuation", "gradient_flow",
    "line_search", "robbins_monro", "CurriculumSampler", "ImportanceSampler",
    # certificates
    "DescentCertificate", "certify_descent", "draw_descent",
    # matrices
    "MatrixParameters", "matrix_parameters", "orthogonalize",
    # curvature
    "gauss_newton", "fisher", "gradient_covariance",
    # curvature measured
    "Sharpness", "SharpnessHistory", "SharpnessTracker", "draw_sharpness", "sharpness",
    "ConditionNumber", "CriticalStep", "PLConstant", "condition_number", "critical_step",
    "pl_constant", "CurvatureTrace", "LayerCurvature", "curvature_trace", "draw_layer_curvature",
    "layer_curvature", "GradientNoise", "gradient_noise",
]  # fmt: skip
