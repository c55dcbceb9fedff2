"""Without new weights, and with preferences: what comes after pre-training."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_most, claim, equals
from vademecum.language import bradley_terry, few_shot, kl_regularized_policy

Kind = Literal["linear", "softmax"]


def attended(keys: Tensor, values: Tensor, query: Tensor, kind: Kind) -> Tensor:
    """One head's answer: values weighted by how well keys match, with or without a softmax."""
    weights = query @ keys.mT
    return (weights.softmax(-1) if kind == "softmax" else weights) @ values


class Recall(nn.Module):
    """A language model of one head: keys are tokens, values the tokens that came after them."""

    def __init__(self, V: int, eta: float, kind: Kind):
        super().__init__()
        self.table = nn.Parameter(torch.eye(V))
        self.eta = eta
        self.kind: Kind = kind

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits after each token, from the pairs before it."""
        x = self.table[tokens]
        rows = [torch.zeros_like(x[:, 0])]
        for t in range(1, x.shape[1]):
            query = x[:, t : t + 1]
            rows.append(self.eta * attended(x[:, :t], x[:, 1 : t + 1], query, self.kind)[:, 0])
        return torch.stack(rows, 1)


def descended(x: Tensor, y: Tensor, eta: float) -> Tensor:
    """The weights after one step of gradient descent from zero, by autograd."""
    W = torch.zeros(x.shape[1], y.shape[1], requires_grad=True)
    with torch.enable_grad():
        loss = (y - x @ W).square().sum() / 2
    return -eta * torch.autograd.grad(loss, W)[0]


@claim(
    by="identity",
    sources=("A-272", "B-416", "D-320"),
    budget=0.6,
    short=r"\eta \textstyle\sum_i y_i x_i^\top x_q = w_1^\top x_q,\quad w_1 = -\eta \nabla L(0)",
)
def in_context_learning(kind: Kind = "linear", labels: Literal["own", "others"] = "own"):
    r"""In-context learning: attention to examples is a step of gradient descent.

    Zero-, one- and few-shot use puts examples into the context and goes on, without new weights. A
    model case: one head of linear attention with keys $x_i$, values $y_i$ and query $x_q$ gives
    $\eta \sum_i y_i x_i^\top x_q$, exactly the prediction after one gradient step from 0 of size
    $\eta$ on $\frac12 \sum_i (y_i - w^\top x_i)^2$. With $x_i = \sqrt d\, e_i$ and $\eta = 1/d$
    the mean squared error over isotropic queries is $\|w_{> n}\|^2$ after $n$ examples: it never
    rises, and is 0 after $d$.

    The same head as a language model, on pairs of tokens in the context, has by `few_shot` the
    log-probabilities of the softmax of that prediction, and its weights stay as they were. Steps
    are by autograd, in $d = 5$ with one output and in $d = 3$ with two.

    Knobs:
        kind: Whether the head has a softmax.
        labels: Whether an example has its own label, or that of another one.
    """
    for d, k, n in ((5, 1, 7), (3, 2, 4)):
        w, eta = torch.randn(d, k), 0.3
        x, queries = torch.randn(n, d), torch.randn(4, d)
        y = x @ w
        shown = y if labels == "own" else y.roll(1, 0)
        found = eta * attended(x, shown, queries, kind)
        wanted = torch.stack([descended(x, y, eta).T @ q for q in queries])
        yield equals("prediction of a head", found, wanted, tol=1e-12, d=d, k=k)
        x, queries = math.sqrt(d) * torch.eye(d), math.sqrt(d) * torch.eye(d)
        y = x @ w
        for m in range(1, d + 1):
            shown = y[:m] if labels == "own" else y.roll(1, 0)[:m]
            guesses = attended(x[:m], shown, queries, kind) / d
            error = (guesses - queries @ w).square().sum(1).mean()
            yield equals("mean squared error", float(error), float(w[m:].square().sum()),
                         tol=1e-12, d=d, m=m)  # fmt: skip
    for V, shots in ((9, 3), (8, 4)):
        order = torch.randperm(V).tolist()  # no token is an answer and a question
        asks, tells = order[:shots], order[shots : 2 * shots]
        model = Recall(V, 2.0, kind)
        before = model.table.detach().clone()
        given = tells if labels == "own" else [*tells[1:], tells[0]]
        examples = [([a], [b]) for a, b in zip(asks, given, strict=True)]
        tokens = torch.tensor([t for pair in zip(asks, tells, strict=True) for t in pair])
        x, y = torch.eye(V)[tokens], torch.eye(V)[tokens[1:]]
        for m in (0, 1, shots):  # zero, one and a few
            seen = examples[:m]
            found = few_shot(model, seen, [([asks[0]], [[t] for t in range(V)])])
            pairs = 2 * m - 1 if m else 0
            x_m = torch.cat([x[:pairs], x[2 * m - 1 : 2 * m]]) if m else x[:0]
            y_m = torch.cat([y[:pairs], torch.eye(V)[asks[:1]]]) if m else y[:0]
            logits = descended(x_m, y_m, 2.0).T @ torch.eye(V)[asks[0]]
            at = {"V": V, "examples": m}
            yield equals("log-probabilities of answers", found.log_probs[0],
                         logits.log_softmax(0), tol=1e-12, **at)  # fmt: skip
        yield equals("weights that changed", int((model.table != before).sum()), 0, V=V)


in_context_learning.foil("softmax attention", kind="softmax", refuted_by="prediction of a head")
in_context_learning.foil("wrong labels in the context", labels="others",
                         refuted_by="log-probabilities of answers")  # fmt: skip


Policy = Literal["tilted", "misplaced", "greedy"]


def policy_of(which: Policy, rewards: Tensor, prior: Tensor, beta: float) -> Tensor:
    """A policy that follows rewards: the best one, one with the price misplaced, or the argmax."""
    if which == "greedy":
        return torch.nn.functional.one_hot(rewards.argmax(-1), rewards.shape[-1]).to(prior)
    price = beta if which == "tilted" else 1 / beta
    return kl_regularized_policy(rewards, prior, beta=price).policy


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """The divergence of p from q, where p may have zeros."""
    return torch.where(p > 0, p * (p / q).log(), 0.0).sum(-1)


@claim(
    by="identity",
    sources=("D-319",),
    budget=0.4,
    short=r"\pi^* \propto \pi_0 e^{r / \beta},\quad P(a \succ b) = \sigma(r_a - r_b)",
)
def preference_alignment(policy: Policy = "tilted", steepness: float = 1.0, others: int = 1000):
    r"""Alignment by preferences: a reward from comparisons, and a policy near the first one.

    Prompts steer generation, and much of what makes it useful comes from a stage of alignment: a
    reward by Bradley and Terry, $P(a \succ b) = \sigma(r_a - r_b)$, and then the policy that
    maximises $\mathbb E_\pi[r] - \beta\, \mathrm{KL}(\pi \| \pi_0)$. That is $\pi^* = \pi_0
    e^{r / \beta} / Z$, with the value $\beta \ln Z$; every other policy loses exactly
    $\beta\, \mathrm{KL}(\pi \| \pi^*)$, since the objective is $\beta \ln Z - \beta\,
    \mathrm{KL}(\pi \| \pi^*)$.

    Checked with `kl_regularized_policy` for 6 and 4 actions and two prices, against policies drawn
    from a Dirichlet law. From the exact probabilities of preferences, with unequal numbers of
    comparisons and some pairs never compared, `bradley_terry` recovers rewards up to a constant.

    Knobs:
        policy: Which policy is meant to be best.
        steepness: What the difference of rewards is multiplied by where preferences are made.
        others: How many other policies are drawn.
    """
    for k, beta in ((6, 0.4), (4, 2.5)):
        rewards, prior = torch.randn(k), torch.distributions.Dirichlet(torch.ones(k)).sample()
        prior = (prior + 0.01) / (prior + 0.01).sum()
        best = policy_of(policy, rewards, prior, beta)
        Z = math.fsum(float(p) * math.exp(float(r) / beta)
                      for p, r in zip(prior, rewards, strict=True))  # fmt: skip

        def value(p: Tensor, r: Tensor = rewards, q: Tensor = prior, b: float = beta) -> Tensor:
            return (p * r).sum(-1) - b * divergence(p, q)

        at = {"k": k, "beta": beta}
        yield equals("objective of the policy", float(value(best)), beta * math.log(Z),
                     tol=1e-12, **at)  # fmt: skip
        told = kl_regularized_policy(rewards, prior, beta=beta).value
        yield equals("value that is told", float(told), beta * math.log(Z), tol=1e-12, **at)
        drawn = torch.distributions.Dirichlet(torch.ones(k)).sample((others,))
        right = prior * (rewards / beta).exp() / Z
        lost = value(best) - value(drawn)
        yield equals("what others lose", lost, beta * divergence(drawn, right), tol=1e-11, **at)
        yield at_most("objective of others", value(drawn), beta * math.log(Z), tol=1e-12, **at)
    for k in (6, 4):
        rewards = torch.randn(k)
        odds = (steepness * (rewards[:, None] - rewards)).exp()
        games = torch.randint(1, 50, (k, k)).triu(1)
        games[0, k - 1] = 0  # a pair that nobody compared
        games = games + games.T
        found = bradley_terry(games * odds / (1 + odds))
        yield equals("rewards from preferences", found.rewards, rewards - rewards.mean(),
                     tol=1e-7, k=k)  # fmt: skip


preference_alignment.foil("the price misplaced: the prior times exp(beta r)", policy="misplaced",
                          refuted_by="objective of the policy")  # fmt: skip
preference_alignment.foil("the best action alone", policy="greedy",
                          refuted_by="objective of the policy")  # fmt: skip
preference_alignment.foil("preferences twice as steep", steepness=2.0,
                          refuted_by="rewards from preferences")  # fmt: skip
