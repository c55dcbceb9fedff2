r"""The neuron of McCulloch and Pitts, and the formula that it computes.

With signs $\sigma \in \{\pm 1\}^n$ (excitatory or inhibitory) and an integer threshold $\theta$,

$$f(x; \sigma, \theta) = 1 \iff \sum_{i=1}^n \sigma_i x_i \ge \theta, \qquad x \in \{0, 1\}^n.$$

Its disjunctive normal form has one minterm for each satisfying input, that is, for each index set
$I \subseteq \{1, \dots, n\}$ with $\sum_{i \in I} \sigma_i \ge \theta$:

$$f(x) = \bigvee_I \Big( \bigwedge_{i \in I} x_i \wedge \bigwedge_{i \notin I} \bar x_i \Big).$$

Everything is exact, in integers. The claims `connectionism.mcculloch_pitts` and
`connectionism.threshold_dnf` check it by exhaustion.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor, nn

from vademecum import arguments
from vademecum.results import one_line

__all__ = ["McCullochPittsNeuron", "NormalForm", "threshold_dnf"]

_MOST_INPUTS = 20


class McCullochPittsNeuron(nn.Module):
    r"""A unit that fires if $\sum_i \sigma_i x_i \ge \theta$.

    AND of $n$ inputs is $\sigma = \mathbf{1}, \theta = n$; OR is $\sigma = \mathbf{1}, \theta = 1$;
    NOT is $\sigma = -1, \theta = 0$. Inhibition is relative: an active inhibitory input counts
    against the others. (In the paper of 1943 it is absolute and silences the unit by itself.)

    Args:
        signs: The $\sigma$, each -1 or +1.
        threshold: The integer $\theta$.

    Raises:
        ValueError: If a sign is not -1 or +1, or the threshold is not an integer.

    References:
        McCulloch and Pitts, A Logical Calculus of the Ideas Immanent in Nervous Activity, Bulletin
        of Mathematical Biophysics, 1943.

    Example:
        >>> butnot = McCullochPittsNeuron(torch.tensor([1, -1]), 1)
        >>> butnot(torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]))
        tensor([0, 0, 1, 0])
    """

    signs: Int[Tensor, " n"]

    def __init__(self, signs: Shaped[Tensor, " n"], threshold: int):
        super().__init__()
        signs = arguments.signs("signs", signs, ndim=1)
        self.register_buffer("signs", signs.to(torch.int8, copy=True))
        self.threshold = arguments.whole("threshold", threshold)

    def forward(self, x: Shaped[Tensor, " *batch n"]) -> Shaped[Tensor, " *batch"]:
        """The unit's answer to each row of bits, in the dtype of `x`."""
        x = arguments.bits("x", x, width=len(self.signs))
        total = torch.where(x.bool(), self.signs, 0).sum(-1)
        return (total >= self.threshold).to(x.dtype)

    def get_extra_state(self) -> int:
        """The threshold, which is saved with the signs."""
        return self.threshold

    def set_extra_state(self, state: int) -> None:
        """Take the threshold of a saved unit."""
        self.threshold = arguments.whole("threshold", state)

    def extra_repr(self) -> str:
        """The signs and the threshold."""
        return f"signs={self.signs.tolist()}, threshold={self.threshold}"


class NormalForm(NamedTuple):
    """A Boolean function as a disjunction of minterms, which prints as a formula.

    Example:
        >>> form = NormalForm(torch.tensor([[False, True], [True, False]]))
        >>> print(form)
        (¬x1 ∧ x2) ∨ (x1 ∧ ¬x2)
        >>> form(torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]))
        tensor([0, 1, 1, 0])
    """

    minterms: Bool[Tensor, " m n"]
    """One row a minterm: which variables it does not negate."""

    __repr__ = one_line

    def __call__(self, x: Shaped[Tensor, " *batch n"]) -> Shaped[Tensor, " *batch"]:
        """The formula's value for each row of bits, in the dtype of `x`."""
        n = arguments.whole("the number of variables", self.minterms.shape[1], high=62)
        x = arguments.bits("x", x, width=n)
        return torch.isin(_codes(x.bool()), _codes(self.minterms)).to(x.dtype)

    def index_sets(self) -> list[frozenset[int]]:
        """For each minterm the variables that it does not negate, counted from 1."""
        return [
            frozenset(i for i, bit in enumerate(row, 1) if bit) for row in self.minterms.tolist()
        ]

    def neurons(self) -> list[McCullochPittsNeuron]:
        r"""One unit for each minterm, so that an OR of them computes the function.

        The minterm of $I$ is the unit with $\sigma_i = 1$ for $i \in I$ and $-1$ elsewhere, and
        threshold $|I|$: any other input lacks an excitation or has an inhibition too many.
        """
        return [McCullochPittsNeuron(2 * row.long() - 1, int(row.sum())) for row in self.minterms]

    def __str__(self) -> str:
        rows = self.minterms.tolist()
        minterms = (
            " ∧ ".join(f"{'' if bit else '¬'}x{i}" for i, bit in enumerate(row, 1)) for row in rows
        )
        return " ∨ ".join(f"({minterm})" for minterm in minterms) or "0"


def threshold_dnf(signs: Shaped[Tensor, " n"], threshold: int) -> NormalForm:
    r"""The disjunctive normal form of a McCulloch-Pitts neuron.

    Args:
        signs: The $\sigma$, each -1 or +1, at most 20 of them: there may be $2^n$ minterms.
        threshold: The integer $\theta$.

    Returns:
        The minterms, ordered as binary numbers whose first digit is $x_1$; none if the neuron
        never fires.

    Raises:
        ValueError: If a sign is not -1 or +1, there are too many, or the threshold is no integer.

    Example:
        >>> print(threshold_dnf(torch.tensor([1, 1, -1]), 1))
        (¬x1 ∧ x2 ∧ ¬x3) ∨ (x1 ∧ ¬x2 ∧ ¬x3) ∨ (x1 ∧ x2 ∧ ¬x3) ∨ (x1 ∧ x2 ∧ x3)
    """
    signs = arguments.signs("signs", signs, ndim=1)
    arguments.whole("the number of signs", len(signs), high=_MOST_INPUTS)
    threshold = arguments.whole("threshold", threshold)
    digits = torch.arange(len(signs) - 1, -1, -1, device=signs.device)
    subsets = (torch.arange(2 ** len(signs), device=signs.device)[:, None] >> digits) & 1
    return NormalForm(subsets[(subsets * signs.long()).sum(1) >= threshold].bool())


def _codes(bits: Bool[Tensor, " *batch n"]) -> Int[Tensor, " *batch"]:
    digits = torch.arange(bits.shape[-1] - 1, -1, -1, device=bits.device)
    return (bits.long() << digits).sum(-1)
