"""The claim machinery: state, check, run and report what the course says."""

from vademecum.claims.evidence import (
    Evidence,
    at_least,
    at_most,
    consistent,
    equals,
    in_mean,
    rejects,
    slope,
)
from vademecum.claims.ledger import By, Claim, Foil, claim, select
from vademecum.claims.memory import recall, remember
from vademecum.claims.oracles import Echelon, complex_step, rational_rank, row_reduce
from vademecum.claims.report import Report, environment, read_reports, write_reports
from vademecum.claims.runner import run
from vademecum.claims.workers import Workers

__all__ = [
    # stating
    "By", "Claim", "Foil", "claim", "select",
    # evidence
    "Evidence", "at_least", "at_most", "consistent", "equals", "in_mean", "rejects", "slope",
    # oracles
    "Echelon", "complex_step", "rational_rank", "row_reduce",
    # running and reporting
    "Report", "Workers", "environment", "read_reports", "recall", "remember", "run",
    "write_reports",
]  # fmt: skip
