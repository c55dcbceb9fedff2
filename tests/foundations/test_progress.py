"""Every function that applies an operator for long shows how far it is, and computes the same."""

import re

import pytest
import torch

from vademecum.foundations import (
    cg,
    diagonal,
    eigsh,
    log_det,
    power_iteration,
    spectral_density,
    trace,
)
from vademecum.foundations._probes import watched
from vademecum.foundations.operators import aslinearoperator

A = torch.diag(torch.linspace(1, 2, 60, dtype=torch.float64))
CALLS = {
    "cg": lambda g, **options: cg(A, torch.ones(60).double(), **options),
    "diagonal": lambda g, **options: diagonal(A, applications=40, generator=g, **options),
    "diagonal, exact": lambda g, **options: diagonal(A, generator=g, **options),
    "eigsh": lambda g, **options: eigsh(A, 2, generator=g, **options),
    "log_det": lambda g, **options: log_det(A, probes=20, steps=5, generator=g, **options),
    "power_iteration": lambda g, **options: power_iteration(A, generator=g, **options),
    "spectral_density": lambda g, **options: spectral_density(A, probes=20, generator=g, **options),
    "spectrum, exact": lambda g, **options: spectral_density(A, probes=60, **options),
    "trace": lambda g, **options: trace(A, applications=40, generator=g, **options),
    "trace, exact": lambda g, **options: trace(A, generator=g, **options),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_bar_counts_the_products_and_changes_nothing(name, capsys):
    plain, shown = (
        CALLS[name](torch.Generator().manual_seed(0), progress=progress)
        for progress in (False, True)
    )
    out, err = capsys.readouterr()
    assert out == ""
    done, total = re.findall(r"(\d+)/(\d+|\?) products with the operator", err)[-1]
    if hasattr(plain, "applications"):
        assert int(done) == plain.applications
    assert total == "?" or int(done) <= int(total)
    for one, other in zip(plain, shown, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_watched_operator_has_its_adjoint(capsys):
    B = torch.randn(3, 40, dtype=torch.complex128)
    with watched(aslinearoperator(B), None, progress=True) as op:
        torch.testing.assert_close(op.dense(), B)
        torch.testing.assert_close(op.H.dense(), B.mH)
    assert "43/? products with the operator" in capsys.readouterr().err
