"""Distributions over weights: posteriors, the chains that sample them, and what they predict.

A *posterior* is an energy, minus the logarithm of prior times likelihood. *Chains* sample it by
Metropolis-Hastings, Hamiltonian or Langevin dynamics, many at once, and tell whether they did;
Laplace's approximation, ensembles and averages of weights are cheaper. All of them *predict*.
"""

from vademecum.bayes.conjugate_regression import BayesianLinearRegression
from vademecum.bayes.convergence_diagnostics import ess, mcse, rhat
from vademecum.bayes.energies import posterior
from vademecum.bayes.importance import ImportanceEnsemble, importance_ensemble
from vademecum.bayes.laplace_approximation import Laplace, laplace
from vademecum.bayes.predictions import PosteriorPredictive, posterior_predictive
from vademecum.bayes.sampling import Chains, sample
from vademecum.bayes.steps import (
    Phase,
    Step,
    hmc_step,
    leapfrog,
    mala_step,
    mh_step,
    sghmc_step,
    sgld_step,
    ula_step,
)
from vademecum.bayes.trained_ensembles import DeepEnsemble, deep_ensemble
from vademecum.bayes.weight_trajectories import SWAG, swag

__all__ = [
    # energies and chains
    "Chains", "posterior", "sample",
    # single steps
    "Phase", "Step", "hmc_step", "leapfrog", "mala_step", "mh_step", "sghmc_step", "sgld_step",
    "ula_step",
    # approximations and ensembles
    "DeepEnsemble", "ImportanceEnsemble", "Laplace", "SWAG", "deep_ensemble",
    "importance_ensemble", "laplace", "swag",
    # predictions
    "BayesianLinearRegression", "PosteriorPredictive", "posterior_predictive",
    # diagnostics
    "ess", "mcse", "rhat",
]  # fmt: skip
