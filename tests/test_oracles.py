"""The oracles of the claims, against derivatives that are known on paper."""

import math

import numpy as np
import pytest
import torch

from vademecum.claims import complex_step

EPS = torch.finfo(torch.float64).eps


def close(found, wanted):
    """Equal up to a few units in the last place, entry by entry: nothing has cancelled."""
    wanted = torch.as_tensor(wanted, dtype=torch.float64)
    torch.testing.assert_close(found, wanted, rtol=16 * EPS, atol=0.0)


FUNCTIONS = {
    "exp": (np.exp, math.exp),
    "sin": (np.sin, math.cos),
    "log": (np.log, lambda x: 1 / x),
    "tanh": (np.tanh, lambda x: 1 / math.cosh(x) ** 2),
    "logistic": (lambda z: 1 / (1 + np.exp(-z)), lambda x: 1 / (2 * math.cosh(x / 2)) ** 2),
    "cube": (lambda z: z * z * z, lambda x: 3 * x * x),
    "polynomial": (lambda z: 4 * z * z - 7 * z + 2, lambda x: 8 * x - 7),
    "square root": (np.sqrt, lambda x: 0.5 / math.sqrt(x)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("x", [1e-6, 0.3, 1.0, 5.0, 12.0])
def test_functions_of_one_number(name, x):
    f, slope = FUNCTIONS[name]
    close(complex_step(f, np.array(x)), slope(x))
    close(complex_step(f, np.array(x), -2), -2 * slope(x))


def test_a_difference_would_have_lost_half_the_digits():
    x, h = 1.0, math.sqrt(EPS)
    assert abs((math.exp(x + h) - math.exp(x)) / h - math.e) > 1e-9
    assert abs(complex_step(np.exp, np.array(x)).item() - math.e) <= 2 * EPS * math.e


def test_axes_of_the_value_come_first():
    x, a = torch.randn(2, 3).double(), torch.randn(4, 2).double()
    found = complex_step(lambda z: a.to(z) @ z, x)  # d (A X)_ij / d X_kl = A_ik [j = l]
    assert found.shape == (4, 3, 2, 3)
    close(found, torch.einsum("ik,jl->ijkl", a, torch.eye(3).double()))
    v = torch.randn(2, 3).double()
    torch.testing.assert_close(complex_step(lambda z: a.to(z) @ z, x, v), a @ v)


def test_matrix_functions():
    x = torch.eye(3).double() + 0.2 * torch.rand(3, 3).double()
    v, inverse = torch.randn(3, 3).double(), torch.linalg.inv(x)
    torch.testing.assert_close(complex_step(torch.linalg.inv, x, v), -inverse @ v @ inverse)
    torch.testing.assert_close(complex_step(lambda z: z @ z, x, v), x @ v + v @ x)
    torch.testing.assert_close(complex_step(torch.det, x), torch.det(x) * inverse.T)
    series = sum(
        np.linalg.matrix_power(x.numpy(), i) @ v.numpy() @ np.linalg.matrix_power(x.numpy(), k - i)
        / math.factorial(k + 1)
        for k in range(40)
        for i in range(k + 1)
    )  # fmt: skip
    torch.testing.assert_close(complex_step(torch.matrix_exp, x, v), torch.as_tensor(series))


def test_tensors_and_arrays_agree_and_so_do_directions_and_partials():
    w, x, v = torch.randn(4, 3).double(), torch.randn(3).double(), torch.randn(3).double()
    of_tensors = complex_step(lambda z: torch.tanh(w.to(z) @ z), x)
    of_arrays = complex_step(lambda z: np.tanh(w.numpy() @ z), x.numpy())
    torch.testing.assert_close(of_tensors, of_arrays)
    along = complex_step(lambda z: torch.tanh(w.to(z) @ z), x, v)
    torch.testing.assert_close(along, of_tensors @ v)
    torch.testing.assert_close(
        of_tensors, torch.autograd.functional.jacobian(lambda x: torch.tanh(w @ x), x)
    )


def test_a_direction_is_broadcast():
    x = torch.randn(5, 2).double()
    found = complex_step(lambda z: z[:, 0] * z[:, 1], x, torch.tensor([1.0, 0.0]))
    close(found, x[:, 1])
    close(complex_step(torch.sin, x, 1), x.cos())


def test_single_precision_and_integers_are_taken_as_double():
    for x in (torch.tensor([3.0]), torch.tensor([3])):
        close(complex_step(lambda z: z * z / 9, x), [[6 / 9]])
    weights = torch.ones(1, requires_grad=True)
    assert not complex_step(torch.exp, weights).requires_grad


@pytest.mark.parametrize(
    ("f", "x", "direction", "message"),
    [
        (torch.exp, torch.tensor([1j]), None, "x must be real, got torch.complex64"),
        (np.exp, np.array([1j]), None, "x must be real, got torch.complex128"),
        (torch.exp, torch.ones(0), None, r"x must not be empty, got shape \(0,\)"),
        (torch.exp, torch.ones(1), 1j, "direction must be real, got torch.complex64"),
        (torch.exp, torch.ones(3), torch.ones(2), r"broadcast to shape \(3,\), got \(2,\)"),
        (torch.exp, torch.ones(3), torch.ones(2, 3), r"shape \(3,\), got \(2, 3\)"),
        (torch.abs, torch.ones(1), None, "f must have complex values .*, got torch.float64"),
        (np.abs, np.ones(1), None, "f must have complex values .*, got torch.float64"),
    ],
)
def test_complex_step_refuses(f, x, direction, message):
    with pytest.raises(ValueError, match=message):
        complex_step(f, x, direction)
