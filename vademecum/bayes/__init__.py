"""Distributions over weights: posteriors, the chains that sample them, and what they predict.

A *posterior* is an energy, minus the logarithm of prior times likelihood. *Chains* sample it by
Metropolis-Hastings, Hamiltonian or Langevin dynamics, many at once, and tell whether they did;
Laplace's approximation, ensembles and averages of weights are cheaper. All of them *predict*.
"""

from vademecum.bayes.convergence_diagnostics import ess, mcse, rhat
from vademecum.bayes.energies import posterior
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

__all__ = [
    # energies and chains
    "Chains", "posterior", "sample",
    # single steps
    "Phase", "Step", "hmc_step", "leapfrog", "mala_step", "mh_step", "sghmc_step", "sgld_step",
    "ula_step",
    # diagnostics
    "ess", "mcse", "rhat",
]  # fmt: skip
