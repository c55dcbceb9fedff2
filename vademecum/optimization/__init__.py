"""Descent methods, what is proved of their speed, and the curvature that decides it.

*Gradient descent* walks downhill, and how fast it may walk is a matter of curvature: steps beyond
two over the largest curvature climb instead, and flat directions wait for steep ones. *Momentum*
remembers the way so far and shortens the wait to its square root. *Stochastic gradients* are cheap
and noisy: with a constant step the iterates end in a ball of noise, which shrinks with the step,
with averages, or with the variance itself. Where a theorem bounds the speed, a *certificate* holds
the bound beside the run.
"""

__all__: list[str] = []
