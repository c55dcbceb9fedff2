"""Why networks generalise: capacity, bounds that cover, and the landscape of the loss.

*Capacity* counts what a class of functions can fit; *PAC-Bayes* bounds the risk of a network whose
weights are drawn afresh, with numbers below 1; *double descent* and memorisation show what counting
misses; the *landscape* is what minima look like: sharpness, connections, tickets.
"""

from vademecum.generalization.kl_inversion import kl_inverse
from vademecum.generalization.pac_bayes_forms import pac_bayes_bound

__all__ = [
    # bounds
    "kl_inverse", "pac_bayes_bound",
]  # fmt: skip
