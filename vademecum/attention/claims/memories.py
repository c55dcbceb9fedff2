"""Memory: attention looks up what recurrent states must compress, and asks again."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.attention import MemoryNetwork, attention
from vademecum.claims import Evidence, at_most, claim, equals

Step = Callable[[Tensor, Tensor], Tensor]


def orthonormal(n: int, d: int) -> Tensor:
    """Random rows of length one at right angles."""
    return torch.linalg.qr(torch.randn(d, n)).Q.T


def power(b: int) -> int:
    """How many states b bits have."""
    return 2**b


def quantised(bits: int) -> Step:
    """A random recurrent network whose units are signs, as numbers of states."""
    U, w, c = torch.randn(bits, bits), torch.randn(bits), torch.randn(bits)

    def step(state: Tensor, x: Tensor) -> Tensor:
        signs = 1.0 - 2.0 * (state[:, None] >> torch.arange(bits) & 1)
        on = signs @ U.T + x[:, None] * w + c > 0
        return (on * 2 ** torch.arange(bits)).sum(1)

    return step


def register(bits: int, k: int) -> Step:
    """A recurrent network that keeps the last inputs, of k values, as far as its bits go."""
    return lambda state, x: (k * state + x) % 2**bits


def final_states(step: Step, sequences: Tensor) -> list[int]:
    """The states of a recurrent network after each of many sequences."""
    state = torch.zeros(len(sequences), dtype=torch.long)
    for x in sequences.T:
        state = step(state, x)
    return state.tolist()


def all_sequences(k: int, n: int) -> Tensor:
    """All sequences of n of k values."""
    return torch.tensor(list(product(range(k), repeat=n)))


@claim(
    by="identity", sources=("B-384", "B-388", "D-299"), budget=0.7,
    short=r"\text{orthonormal keys: } a_{i, n+1-i} \ge 1 - (n - 1) e^{-\beta};\ b"
    r" \text{ bits tell} \le 2^b \text{ sequences apart}",
)  # fmt: skip
def recurrent_attention(
    sees: Literal["all states", "the last state"] = "all states",
    others: Callable[[int], int] = lambda n: n - 1,
    capacity: Callable[[int], int] = power,
    sequences: int = 40,
) -> Iterator[Evidence]:
    r"""Attention over encoder states.

    A recurrent network with attention lets the state $\xi^i$ of its decoder query all states $h_1,
    \dots, h_n$ of its encoder and receive their weighted average: the recurrence encodes what may
    become relevant, attention selects in retrospect. This removes the bottleneck of a fixed size:
    with orthonormal keys for positions, in a dimension of at least $n$, and sharpness $\beta$ it
    reverses sequences of length $n$; the weights of row $i$ miss the state $n + 1 - i$ by $(n - 1)
    / (e^\beta + n - 1) \le (n - 1) e^{-\beta}$. A state of $b$ bits cannot tell more than $2^b$
    sequences apart, and a shift register does as many.

    Weights are set by hand: the encoder's state turns from a position's key to the next one's by a
    matrix, and holds the current symbol beside it; the decoder's turns back by the transpose.

    Knobs:
        sees: What the decoder attends to.
        others: The factor before $e^{-\beta}$, of the length $n$.
        capacity: How many sequences a state of $b$ bits can tell apart.
        sequences: How many sequences of each length are reversed.
    """
    beta, symbols = 40.0, 5
    for n in (2, 3, 7, 20, 50):
        keys = orthonormal(n, n + n % 3)
        onward = keys[1:].T @ keys[:-1]  # takes each key to the next one
        text = torch.randint(symbols, (sequences, n))
        position, states = keys[0], []
        for _ in range(n):
            states.append(position)
            position = onward @ position
        states, xi = torch.stack(states), states[-1]
        values = torch.nn.functional.one_hot(text, symbols).double()
        seen = torch.arange(n) >= (n - 1 if sees == "the last state" else 0)
        looked, wrong = [], 0
        for i in range(n):
            output, weights = attention(xi[None], states, values, mask=seen[None], scale=beta)
            looked.append(weights[0])
            wrong += int((output[:, 0].argmax(1) != text[:, n - 1 - i]).sum())
            xi = onward.T @ xi
        yield equals("symbols of reversed sequences that are wrong", wrong, 0, n=n)
        yield from reversal(torch.stack(looked), beta, others)
    yield from bottleneck(capacity)


def reversal(A: Tensor, beta: float, others: Callable[[int], int]) -> Iterator[Evidence]:
    """Weights of a reversal: one on the other diagonal, and as much elsewhere as stated."""
    n, tol = len(A), 1e-12 * len(A)  # keys are orthonormal up to some 1e-15 n, times beta
    yield equals("weights of a row", A.sum(1), 1.0, tol=tol, n=n)
    yield at_most("weights, their sign turned", -A, 0.0, tol=0.0, n=n)
    missed = A.masked_fill(torch.eye(n).flip(1) > 0, 0).sum(1).log()
    stated = math.log(others(n)) - beta
    yield at_most("logarithm of the weight elsewhere", missed, stated, tol=tol, n=n)
    stated = math.log(n - 1) - math.log(math.exp(beta) + n - 1)
    yield equals("the same, in closed form", missed, stated, tol=tol, n=n)


def bottleneck(capacity: Callable[[int], int]) -> Iterator[Evidence]:
    """How many of all binary sequences of length 12 states of b bits tell apart."""
    for b in (3, 8):
        for name, step in (("random signs", quantised(b)), ("a register", register(b, 2))):
            found = len(set(final_states(step, all_sequences(2, 12))))
            yield at_most("sequences of length 12 told apart", found, capacity(b), b=b, net=name)
        yield equals("the same, by a register", found, 2**b, b=b)


recurrent_attention.foil("the last state alone", sees="the last state")
recurrent_attention.foil("one other state", others=lambda n: 1)
recurrent_attention.foil("a bit less", capacity=lambda b: 2 ** (b - 1))


@claim(
    by="identity", sources=("A-261",), budget=0.5,
    short=r"\text{orthonormal keys: } \|\hat v - v\| \le 2 (N - 1) e^{-\beta}"
    r" \max_j \|v_j\|;\ b \text{ bits of state: } 2^b \ge k^N",
)  # fmt: skip
def recall_versus_compression(
    beta: float | None = 20.0,
    factor: float = 2.0,
    capacity: Callable[[int], int] = power,
) -> Iterator[Evidence]:
    r"""Transformers index, recurrent networks compress.

    Attention stores all past tokens and learns to index them: with orthonormal keys and inverse
    temperature $\beta$ it recalls any of $N$ stored pairs with an error of at most $2 (N - 1)
    e^{-\beta} \max_j \|v_j\|$, which it nearly makes if all other values are the negative of the
    one asked for. A recurrent state of $b$ bits can answer all queries about $N$ pairs with $k$
    possible values only if $2^b \ge k^N$, so that it has to learn what to forget: of all
    assignments it recalls at most $2^b$ in full, and $2^b$ or all if it writes them down. Recurrent
    networks are enumerated for $N = 8$, $k = 2$ and $N = 4$, $k = 3$, their decoder is the best.

    Knobs:
        beta: The inverse temperature of attention, in place of 20; that of the usual scale if None.
        factor: The factor before $N - 1$.
        capacity: How many assignments a state of $b$ bits can recall.
    """
    for N, width in ((4, 3), (17, 5), (64, 2)):
        keys, drawn = orthonormal(N, N + 3), torch.randn(N, width)
        for i in range(N):
            opposite = torch.full((N, width), -1.0)
            opposite[i] = 1.0
            for kind, v in (("random", drawn), ("opposite", opposite)):
                found = attention(keys[i : i + 1], keys, v, scale=beta).output[0]
                error, largest = (found - v[i]).norm(), v.norm(dim=1).max()
                bound = factor * (N - 1) * math.exp(-20) * largest
                at: dict[str, Any] = {"N": N, "i": i, "values": kind}
                # the output is rounded by N machine precisions of the largest value
                yield at_most("error of a recalled value", error, bound, tol=N * 2.0**-50, **at)
                if kind == "opposite":
                    exact = 2 * (N - 1) / (math.exp(20) + N - 1) * largest
                    yield equals("the same, in closed form", error, exact, tol=N * 2.0**-50, **at)
    for N, k, enough in ((8, 2, 8), (4, 3, 7)):
        sequences = all_sequences(k, N)
        for b in (3, 6, enough):
            for kind, step in (("random signs", quantised(b)), ("written down", register(b, k))):
                states = final_states(step, sequences)
                recalled = len(Counter(states))  # the best decoder names one assignment a state
                name, at = "assignments recalled in full", {"N": N, "k": k, "b": b, "net": kind}
                yield at_most(name, recalled, capacity(b), **at)
                if kind == "written down":
                    yield equals("the same, against all it can", recalled, min(2**b, k**N), **at)


recall_versus_compression.foil("at the usual scale, not sharp enough", beta=None)
recall_versus_compression.foil("the factor 2 dropped", factor=1.0)
recall_versus_compression.foil("a bit less", capacity=lambda b: 2 ** (b - 1))


def told(cells: int, relations: int, beta: float, forgets: bool) -> MemoryNetwork:
    """A memory network whose words are cells and relations, with weights set by hand.

    A fact "a, r, b" has the key a + r and the value b; a question is a + r. Combining keeps r.
    """
    words = cells + relations
    net = MemoryNetwork(words, fact_words=3, question_words=2, width=words, beta=beta)
    kept = torch.diag((torch.arange(words) >= cells) * 1.0)
    zero, one = torch.zeros(words, words), torch.eye(words)
    tables: Any = (*net.keys, *net.values, *net.question, net.combine, net.answer)
    numbers = (one, one, zero, zero, zero, one, one, one, zero if forgets else kept, one)
    with torch.no_grad():
        for table, value in zip(tables, numbers, strict=True):
            table.weight.copy_(value)
        net.answer.bias.zero_()
    return net


@claim(
    by="identity", sources=("A-262", "A-263", "B-389", "B-390"), budget=0.7,
    short=r"u \leftarrow H u + V^\top \mathrm{softmax}(\beta K u),"
    r"\quad k\ \text{facts need}\ k\ \text{hops}",
)  # fmt: skip
def memory_network(
    hops: Callable[[int], int] = lambda k: k,
    forgets: bool = False,
    beta: float = 60.0,
    cells: int = 20,
) -> Iterator[Evidence]:
    r"""Memory networks and recursive associative recall.

    A memory network is a recurrent attention model over a possibly large external memory: given a
    query $q$, find the best matching cell $i$, combine its content $m_i$ with $q$ into a new query,
    and repeat. Questions that chain $k$ facts need $k$ hops. Here facts say "b is the r of a", in
    any order, for random maps and permutations r, and a question asks for the r of the r ... of a:
    hard recall at any $\beta$, and soft recall with $\beta = 60$, read the $k$ facts one after the
    other and give the answer exactly for $k = 1, \dots, 5$, every a and every r, and so for one
    relation and for three. Combining replaces a and keeps r.

    Knobs:
        hops: How many hops answer a question of $k$ facts.
        forgets: Whether combining keeps nothing of the query.
        beta: The inverse temperature of soft recall.
        cells: How many cells a table of pointers has.
    """
    for relations, bijective in ((1, True), (3, False)):
        after = torch.stack([torch.randperm(cells) if bijective else torch.randint(cells, (cells,))
                             for _ in range(relations)])  # fmt: skip
        a, r = (x.flatten() for x in torch.meshgrid(torch.arange(cells), torch.arange(relations),
                                                    indexing="ij"))  # fmt: skip
        order = torch.randperm(len(a))
        facts = torch.stack((a, cells + r, after[r, a]), 1)[order].expand(len(a), -1, -1)
        net, question = told(cells, relations, beta, forgets), torch.stack((a, cells + r), 1)
        for recall, k in product(("hard", "softmax"), range(1, 6)):
            net.recall, net.hops = recall, hops(k)
            net.beta = beta if recall == "softmax" else 1.0  # which hard recall does not know
            cell, support = a, []
            for _ in range(k):
                support.append((order == (cell * relations + r)[:, None]).long().argmax(1))
                cell = after[r, cell]
            at = {"relations": relations, "k": k, "recall": recall}
            with torch.no_grad():
                logits, found = net(facts, question), net.read(facts, question)
            wrong = int((logits[:, :cells].argmax(1) != cell).sum())
            yield equals("answers that are wrong", wrong, 0, **at)
            read = found.weights.argmax(2)
            yield equals("the fact that the last hop read", read[:, -1], support[-1], **at)
            # a fact that matches half has e^{-beta} of the weight: nothing beside rounding
            one = torch.eye(cells + relations)
            stated = one[cell] + one[cells + r]
            yield equals("state after the last hop", found.state, stated, tol=1e-12, **at)


memory_network.foil("a hop less", hops=lambda k: max(1, k - 1), refuted_by="answers that are wrong")
memory_network.foil("the query forgotten", forgets=True)
memory_network.foil("recall that is not sharp", beta=1.0)
