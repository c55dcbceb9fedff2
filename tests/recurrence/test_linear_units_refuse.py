"""What linear recurrent units refuse, and what they say then."""

import re
from typing import Any, cast

import pytest
import torch

from vademecum.recurrence import LRU, lru_init

X, WORD = torch.zeros(2, 5, 3), cast(Any, "volume")
STATE = torch.zeros(1, 2, 4, dtype=torch.complex64)
MISTAKES = [
    (lambda: LRU(0, 4), "d must be >= 1, got 0"),
    (lambda: LRU(3, 0), "m must be >= 1, got 0"),
    (lambda: LRU(3, 4, layers=0), "layers must be >= 1, got 0"),
    (lambda: LRU(3, 4, r_max=1.5), "r_max must be <= 1, got 1.5"),
    (lambda: LRU(3, 4, r_min=0.9, r_max=0.5), "r_min must be <= 0.5, got 0.9"),
    (lambda: LRU(3, 4, r_min=1.0), "r_min must be < 1, got 1"),
    (lambda: LRU(3, 4, r_max=0.0), "r_max must be > 0, got 0"),
    (lambda: LRU(3, 4, max_phase=7.0), "max_phase must be <= 6.28319, got 7.0"),
    (lambda: lru_init(3, by=WORD), "by must be one of 'area', 'modulus', got 'volume'"),
    (lambda: LRU(3, 4)(X[:, :, :2]), "x must have the shape (n, T, 3), T >= 1, got (2, 5, 2)"),
    (lambda: LRU(3, 4)(X[:, :0]), "x must have the shape (n, T, 3), T >= 1, got (2, 0, 3)"),
    (lambda: LRU(3, 4)(X[0]), "x must have the shape (n, T, 3), T >= 1, got (5, 3)"),
    (lambda: LRU(3, 4)(X.double()), "x must be torch.float32 as the parameters are, got torch.fl"),
    (lambda: LRU(3, 4)(X.long()), "x must be torch.float32 as the parameters are, got torch.int"),
    (lambda: LRU(3, 4).step(X), "x must have the shape (n, 3), got (2, 5, 3)"),
    (lambda: LRU(3, 4)(X, STATE.real), "state must be torch.complex64 of shape (1, 2, 4), got"),
    (lambda: LRU(3, 4)(X, STATE[:, :1]), "of shape (1, 2, 4), got torch.complex64 of shape"),
    (lambda: LRU(3, 4).step(X[:, 0], STATE[0]), "of shape (1, 2, 4), got torch.complex64 of shape"),
    (lambda: LRU(3, 4).step(X[:, 0], STATE.to(torch.complex128)), "got torch.complex128 of shape"),
    (lambda: LRU(3, 4)(X, lengths=torch.tensor([5, 6])), "lengths must be from 1 to 5, got [5, 6]"),
    (lambda: LRU(3, 4)(X, lengths=torch.tensor([0, 5])), "lengths must be from 1 to 5, got [0, 5]"),
    (lambda: LRU(3, 4)(X, lengths=torch.tensor([5])), "lengths must be 2 integers, got torch.int"),
    (lambda: LRU(3, 4)(X, lengths=torch.ones(2)), "lengths must be 2 integers, got torch.float32"),
    (lambda: LRU(3, 4)(X, lengths=torch.ones(2) > 0), "lengths must be 2 integers, got torch.bool"),
    (lambda: LRU(3, 4)(X, reset=torch.zeros(2, 5)), "reset must be boolean"),
    (lambda: LRU(3, 4)(X, reset=torch.zeros(2, 4, dtype=torch.bool)), "reset must have the shape"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
