"""Distributions over weights: posteriors, the chains that sample them, and what they predict.

A *posterior* is an energy, minus the logarithm of prior times likelihood. *Chains* sample it by
Metropolis-Hastings, Hamiltonian or Langevin dynamics, many at once, and tell whether they did;
Laplace's approximation, ensembles and averages of weights are cheaper. All of them *predict*.
"""

from vademecum.bayes.convergence_diagnostics import ess, mcse, rhat

__all__ = [
    # diagnostics
    "ess", "mcse", "rhat",
]  # fmt: skip
