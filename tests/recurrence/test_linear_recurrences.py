"""Dense and diagonal linear recurrences against exact fractions, and what they remember."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch

from vademecum.claims import integers
from vademecum.recurrence import LRU, LinearRecurrence, diagonalize_recurrence, memory_length
from vademecum.testing import check_part


def made(m=4, d=2, k=3, dtype=torch.float64, radius=0.9):
    A = torch.randn(m, m, dtype=dtype)
    A = radius * A / torch.linalg.eigvals(A).abs().max()
    shapes = ((m, d), (k, m), (k, d))
    return LinearRecurrence(A, *(torch.randn(s, dtype=dtype) for s in shapes))


def in_fractions(A, B, C, D, x):
    """Outputs by the definition, in numbers that never round."""
    matrices = [np.array([[Fraction(v) for v in row] for row in p.tolist()]) for p in (A, B, C, D)]
    A, B, C, D = matrices
    h, y = np.array([Fraction(0)] * len(A)), []
    for row in x.tolist():
        u = np.array([Fraction(v) for v in row])
        h = A.dot(h) + B.dot(u)
        y.append(C.dot(h) + D.dot(u))
    return torch.tensor(np.array(y).astype(float)), torch.tensor(h.astype(float))


def test_linear_recurrence_is_exact_in_integers():
    A, B, C, D = (integers(*s, most=2) for s in ((3, 3), (3, 2), (4, 3), (4, 2)))
    x = integers(2, 9, 2)
    y, state = LinearRecurrence(A, B, C, D)(x)
    for i in range(2):
        wanted, last = in_fractions(A, B, C, D, x[i])
        assert torch.equal(y[i], wanted)
        assert torch.equal(state[i], last)


@pytest.mark.parametrize("form", ["dense", "diagonal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_and_states_that_go_on(form, dtype):
    net = made(dtype=dtype)
    net = net if form == "dense" else diagonalize_recurrence(net).recurrence
    x, tol = torch.randn(3, 10, 2, dtype=dtype), 1e-12 if dtype == torch.float64 else 2e-5
    whole, state = net(x), None
    for t in range(10):
        y, state = net.step(x[:, t], state)
        assert torch.allclose(y, whole.output[:, t], rtol=tol, atol=tol)
    assert state is not None
    assert torch.allclose(state, whole.state, rtol=tol, atol=tol)
    _, state = net(x[:, :6])
    rest = net(x[:, 6:], state).output
    assert torch.allclose(rest, whole.output[:, 6:], rtol=tol, atol=tol)


def test_without_output_matrices_the_states_come_out():
    net = made()
    plain = LinearRecurrence(net.A, net.B, torch.eye(4).double())
    x = torch.randn(2, 5, 2).double()
    assert torch.equal(plain(x).output[:, -1], net(x).state)
    assert net.D is not None
    wanted = plain(x).output @ net.C.T + x @ net.D.T
    assert torch.allclose(net(x).output, wanted, rtol=0, atol=1e-12)


def test_autocast_leaves_the_states_of_a_diagonal_in_single_precision():
    net, x = LinearRecurrence(torch.rand(3), torch.randn(3, 2), torch.eye(3)), torch.randn(2, 9, 2)
    wanted = net(x)
    with torch.autocast("cpu", torch.bfloat16):
        y, state = net(x)
    assert state.dtype == torch.float32
    assert torch.allclose(y.float(), wanted.output, atol=0.1)
    assert torch.allclose(state, wanted.state, atol=0.1)


def test_laws_of_parts():
    check_part(made(dtype=torch.float32), torch.randn(4, 7, 2))
    real = LinearRecurrence(torch.tensor([0.5, -0.3]), torch.randn(2, 3), torch.eye(2))
    check_part(real, torch.randn(4, 7, 3))


@pytest.mark.parametrize("m", [1, 2, 5, 30])
def test_diagonalize_recurrence_keeps_outputs_and_states(m):
    net = made(m)
    form = diagonalize_recurrence(net)
    x = torch.randn(2, 40, 2).double()
    y, state = form.recurrence(x)
    wanted = net(x)
    tol = 1e-13 * form.condition * m
    assert torch.allclose(y, wanted.output.to(y.dtype), rtol=0, atol=tol)
    assert torch.allclose(state @ form.vectors.T, wanted.state.to(y.dtype), rtol=0, atol=tol)
    assert math.isclose(form.condition, np.linalg.cond(form.vectors.numpy()), rel_tol=1e-9)
    assert form.recurrence.A.shape == (m,)
    again = diagonalize_recurrence(form.recurrence)
    assert math.isclose(again.condition, 1.0), "a diagonal has the unit vectors"


def test_single_precision_is_diagonalised_in_double_and_given_back():
    form = diagonalize_recurrence(made(6, dtype=torch.float32))
    assert form.recurrence.A.dtype == form.vectors.dtype == torch.complex64


JORDAN = torch.tensor([[1.0, 1.0], [0.0, 1.0]]).double()


@pytest.mark.parametrize("turned", [False, True])
def test_defective_matrices_are_refused(turned):
    blocks = [JORDAN, 0.5 * JORDAN, torch.diag(torch.ones(3), 1).double(),
              torch.block_diag(JORDAN, torch.eye(3).double(), 0.3 * JORDAN)]  # fmt: skip
    for A in blocks:
        for _ in range(20 if turned else 1):
            Q = torch.linalg.qr(torch.randn(len(A), len(A)).double()).Q
            B = Q @ A @ Q.T if turned else A
            with pytest.raises(ValueError, match="A is defective: its eigenvectors have the cond"):
                diagonalize_recurrence(LinearRecurrence(B, B, B))


def test_what_is_nearly_defective_may_be_asked_for():
    net = LinearRecurrence(torch.tensor([[1.0, 1.0], [0.0, 1 + 1e-6]]).double(), JORDAN, JORDAN)
    assert 1e6 < diagonalize_recurrence(net).condition < 1e7
    with pytest.raises(ValueError, match=r"number 2\.1e\+06, more than 1e\+06"):
        diagonalize_recurrence(net, max_condition=1e6)
    multiple = LinearRecurrence(torch.eye(3), torch.eye(3), torch.eye(3))
    assert diagonalize_recurrence(multiple).condition == 1.0


def test_memory_length_of_all_kinds():
    values = torch.polar(torch.tensor([0.5, 0.9, 1.0, 0.0]), torch.tensor([0.3, 2.0, 0.0, 0.0]))
    wanted = [1 / math.log(2), -1 / math.log(0.9), math.inf, 0.0]
    assert memory_length(values).tolist() == pytest.approx(wanted, rel=1e-5)
    net = made(5, radius=0.95)
    times = memory_length(net)
    assert times.max() == pytest.approx(-1 / math.log(0.95))
    form = diagonalize_recurrence(net).recurrence
    assert torch.allclose(memory_length(form).sort()[0], times.sort()[0])
    unit = LRU(2, 7, layers=3)
    wanted = -1 / unit.eigenvalues.detach().to(torch.complex128).abs().log()
    assert torch.allclose(memory_length(unit).double(), wanted, rtol=1e-3)
    Q = torch.linalg.qr(torch.randn(6, 6).double()).Q
    assert memory_length(LinearRecurrence(Q, Q, Q)).min() > 1e12, "rotations forget nothing"


EYE, X = torch.eye(2), torch.zeros(3, 5, 2)
MISTAKES = [
    (
        lambda: LinearRecurrence(torch.ones(2, 3), EYE, EYE),
        "A must be square or a diagonal, got shape",
    ),
    (
        lambda: LinearRecurrence(EYE, torch.ones(3, 2), EYE),
        "B must have the shape (2, 2), got (3, 2)",
    ),
    (lambda: LinearRecurrence(EYE, EYE, torch.ones(2, 3)), "C must have the shape (2, 2), got"),
    (lambda: LinearRecurrence(EYE, EYE, EYE, torch.ones(2, 3)), "D must have the shape (2, 2)"),
    (
        lambda: LinearRecurrence(EYE, EYE.double(), EYE),
        "B must be torch.float32 on cpu as A is, got",
    ),
    (lambda: LinearRecurrence(EYE.long(), EYE, EYE), "A must be floating point, got torch.int64"),
    (lambda: LinearRecurrence(EYE / 0, EYE, EYE), "A must be finite, got"),
    (lambda: LinearRecurrence(EYE, EYE, EYE)(X[0]), "x must have the shape (n, T, 2), T >= 1, got"),
    (
        lambda: LinearRecurrence(EYE, EYE, EYE)(X[:, :0]),
        "x must have the shape (n, T, 2), T >= 1, got",
    ),
    (
        lambda: LinearRecurrence(EYE, EYE, EYE)(X.double()),
        "x must be torch.float32 as the matrices are",
    ),
    (
        lambda: LinearRecurrence(EYE, EYE, EYE).step(X),
        "x must have the shape (n, 2), got (3, 5, 2)",
    ),
    (
        lambda: LinearRecurrence(EYE, EYE, EYE)(X, EYE),
        "state must be torch.float32 of shape (3, 2), got",
    ),
    (lambda: memory_length(torch.tensor([0.5, 1.1])), "eigenvalues must have moduli of at most 1"),
    (lambda: memory_length(LinearRecurrence(2 * EYE, EYE, EYE)), "moduli of at most 1, got 2"),
    (lambda: memory_length(torch.tensor([1])), "eigenvalues must be floating point"),
    (
        lambda: diagonalize_recurrence(LinearRecurrence(EYE, EYE, EYE), max_condition=0.5),
        ">= 1, got",
    ),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
