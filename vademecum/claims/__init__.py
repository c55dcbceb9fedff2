"""The claim machinery: state, check, run and report what the course says."""

from vademecum.claims.evidence import (
    Evidence,
    at_least,
    at_most,
    consistent,
    equals,
    in_mean,
    rejects,
)
from vademecum.claims.knobs import lowest
from vademecum.claims.ledger import By, Claim, Foil, Weight, claim, select
from vademecum.claims.memory import recall, remember
from vademecum.claims.oracles import complex_step
from vademecum.claims.rates import slope
from vademecum.claims.report import (
    VERDICTS,
    Checked,
    Report,
    environment,
    read_checked,
    read_reports,
    write_reports,
)
from vademecum.claims.runner import run
from vademecum.claims.samples import finite_law, integers, with_eigenvalues
from vademecum.claims.workers import Workers

__all__ = [
    # stating
    "By", "Claim", "Foil", "Weight", "claim", "lowest", "select",
    # evidence
    "Evidence", "at_least", "at_most", "consistent", "equals", "in_mean", "rejects", "slope",
    # oracles
    "complex_step",
    # samples
    "finite_law", "integers", "with_eigenvalues",
    # running and reporting
    "VERDICTS", "Checked", "Report", "Workers", "environment", "read_checked", "read_reports",
    "recall", "remember", "run", "write_reports",
]  # fmt: skip
