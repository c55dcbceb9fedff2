from itertools import product

import pytest
import torch

from vademecum.connectionism.mcculloch_pitts import (
    McCullochPittsNeuron,
    NormalForm,
    threshold_dnf,
)

DTYPES = [torch.bool, torch.uint8, torch.int64, torch.float32, torch.float64]


def all_bits(n):
    return torch.tensor(list(product((0, 1), repeat=n)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_neuron_counts_excitation_and_inhibition(dtype):
    for n, theta in product((1, 3), range(-4, 5)):
        for signs in product((-1, 1), repeat=n):
            neuron = McCullochPittsNeuron(torch.tensor(signs), theta)
            found = neuron(all_bits(n).to(dtype))
            wanted = [
                sum(s for s, bit in zip(signs, bits, strict=True) if bit) >= theta
                for bits in product((0, 1), repeat=n)
            ]
            assert found.dtype == dtype
            assert found.bool().tolist() == wanted


def test_the_neuron_takes_any_batch():
    neuron = McCullochPittsNeuron(torch.tensor([1.0, 1.0, -1.0]), 1)
    x = torch.randint(2, (4, 5, 3))
    assert neuron(x).shape == (4, 5)
    assert torch.equal(neuron(x)[2, 3], neuron(x[2, 3]))
    assert repr(neuron) == "McCullochPittsNeuron(signs=[1, 1, -1], threshold=1)"


def test_wide_neurons_do_not_overflow():
    neuron = McCullochPittsNeuron(torch.ones(70_000), 70_000)
    assert int(neuron(torch.ones(70_000))) == 1
    assert int(neuron(torch.ones(70_000).index_fill(0, torch.tensor([5]), 0))) == 0


def test_a_saved_neuron_keeps_its_threshold():
    one, other = (McCullochPittsNeuron(torch.tensor([1, 1]), theta) for theta in (1, 2))
    other.load_state_dict(one.state_dict())
    assert other.threshold == 1


def test_the_formula_of_a_neuron():
    form = threshold_dnf(torch.tensor([1, -1]), 0)
    assert str(form) == "(¬x1 ∧ ¬x2) ∨ (x1 ∧ ¬x2) ∨ (x1 ∧ x2)"
    assert form.index_sets() == [set(), {1}, {1, 2}]
    assert form.minterms.tolist() == [[False, False], [True, False], [True, True]]
    assert str(threshold_dnf(torch.tensor([1, -1]), 2)) == "0"
    assert threshold_dnf(torch.tensor([1, -1]), 2)(all_bits(2)).tolist() == [0, 0, 0, 0]


def test_the_formula_means_the_same_to_python():
    for signs, theta in product(product((-1, 1), repeat=3), range(-4, 5)):
        form = threshold_dnf(torch.tensor(signs), theta)
        text = str(form).replace("¬", " not ").replace("∧", "and").replace("∨", "or")
        values = [
            bool(eval(text, {f"x{i}": bit for i, bit in enumerate(bits, 1)}))
            for bits in product((0, 1), repeat=3)
        ]
        assert form(all_bits(3)).bool().tolist() == values
        assert McCullochPittsNeuron(torch.tensor(signs), theta)(all_bits(3)).tolist() == values


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_formula_takes_any_batch_and_dtype(dtype):
    form = threshold_dnf(torch.ones(4), 2)
    x = torch.randint(2, (3, 6, 4)).to(dtype)
    assert form(x).dtype == dtype
    assert torch.equal(form(x), (x.long().sum(-1) >= 2).to(dtype))


def test_the_neuron_keeps_its_own_signs():
    signs = torch.tensor([1, -1], dtype=torch.int8)
    neuron = McCullochPittsNeuron(signs, 1)
    signs[0] = -1
    assert neuron.signs.tolist() == [1, -1]


def test_minterms_are_neurons():
    xor = NormalForm(torch.tensor([[False, True], [True, False]]))
    x = all_bits(2)
    assert [unit(x).tolist() for unit in xor.neurons()] == [[0, 1, 0, 0], [0, 0, 1, 0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: McCullochPittsNeuron(torch.tensor([1, 0]), 1), "entries of signs must be -1 or"),
        (lambda: McCullochPittsNeuron(torch.tensor([1, torch.nan]), 1), "entries of signs must"),
        (lambda: McCullochPittsNeuron(torch.ones(0), 1), "signs must not be empty"),
        (lambda: McCullochPittsNeuron(torch.ones(2), True), "threshold must be an integer"),
        (lambda: McCullochPittsNeuron(torch.ones(2), 1)(torch.ones(3)), "x must be 2 wide"),
        (lambda: McCullochPittsNeuron(torch.ones(2), 1)(torch.tensor([0, 2])), r"got 2 at \(1,\)"),
        (
            lambda: McCullochPittsNeuron(torch.ones(2), 1)(torch.tensor([0.0, torch.nan])),
            r"entries of x must be 0 or 1, got nan at \(1,\)",
        ),
        (lambda: threshold_dnf(torch.tensor([2]), 1), "entries of signs must be -1 or"),
        (lambda: threshold_dnf(torch.ones(21), 1), "the number of signs must be <= 20, got 21"),
        (lambda: threshold_dnf(torch.ones(2), False), "threshold must be an integer"),
        (lambda: threshold_dnf(torch.ones(2), 1)(torch.ones(1, 3)), "x must be 2 wide"),
        (lambda: threshold_dnf(torch.ones(2), 1)(torch.tensor([[0, -1]])), "must be 0 or 1"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_neuron_and_formula_run_on_cuda():
    signs, x = torch.tensor([1, -1, 1, 1], device="cuda"), all_bits(4).cuda()
    neuron, form = McCullochPittsNeuron(signs, 1), threshold_dnf(signs, 1)
    assert neuron(x).is_cuda
    assert form(x).is_cuda
    assert torch.equal(neuron(x), form(x))
    assert torch.equal(neuron(x).cpu(), neuron.cpu()(x.cpu()))
