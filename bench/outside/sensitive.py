"""Spectral norms of input Jacobians, against the singular values of the oracle's matrix."""

from collections.abc import Iterator

import torch

from bench.outside.cases import Subject
from bench.outside.derivatives import Check, _same, _seeded
from bench.outside.oracles import Oracle
from vademecum.robustness import jacobian_spectral_norm

__all__ = ["SENSITIVE"]


def _norms(s: Subject, o: Oracle) -> Iterator[str]:
    found = jacobian_spectral_norm(s.model, s.x, wrt=s.wrt, output=s.output, generator=_seeded())
    n = len(found.value)
    own = torch.arange(n)
    blocks = o.in_x.double().view(n, -1, n, o.in_x.shape[1] // n)[own, :, own]
    wanted = torch.linalg.svdvals(blocks)[:, 0]
    yield _same(o)("spectral norms", found.value.double(), wanted)


SENSITIVE: dict[str, Check] = {"jacobian_spectral_norm": _norms}
"""What asks the instrument, by its name."""
