"""Single steps of many chains: Metropolis, Hamilton, Langevin."""

from vademecum.bayes.steps.hamiltonian import Phase, hmc_step, leapfrog
from vademecum.bayes.steps.langevin import mala_step, sghmc_step, sgld_step, ula_step
from vademecum.bayes.steps.metropolis import Step, mh_step

__all__ = [
    "Phase", "Step", "hmc_step", "leapfrog", "mala_step", "mh_step", "sghmc_step", "sgld_step",
    "ula_step",
]  # fmt: skip
