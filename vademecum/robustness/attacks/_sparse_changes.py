r"""A greedy attack that changes at most $k$ entries, each freely within the box.

To first order entry $i$ raises the loss most at the end of the box to which its derivative $g_i$
points, by $\gamma_i = \max\{g_i (h - x_i), g_i (l - x_i)\}$ counted from where it began. Step $t$
of $T$ takes the $\lceil k t / T \rceil$ entries with the largest $\gamma_i$ to their ends, with the
gradient at the last point. For a linear score this is optimal: the fewest entries that change the
sign are those with the largest gains. The claim is `robustness.sparse_perturbation`.

Papernot et al., The limitations of deep learning in adversarial settings, EuroS&P, 2016, choose
pairs of entries by such a saliency.
"""

from vademecum.robustness.attacks._campaign import Battle, Proposal
from vademecum.robustness.attacks._kept import Kept

__all__ = ["sparse_search"]


def sparse_search(battle: Battle, *, steps: int, loss: str) -> Proposal:
    """Change ever more entries, up to as many as the radius says, until the model is fooled."""
    kept = Kept(battle)
    x0, goal, threat = kept.own(battle)
    x, t = x0, 0
    while True:
        x, z, value, slope = kept.look(battle, x, goal, loss, gradient=t < steps)
        stay = kept.note(x, z, value, goal)
        if stay is not None:
            x0, slope = x0[stay], slope[stay]
            goal, threat = goal.rows(stay), threat.rows(stay)
        if t == steps or not len(x0):
            return kept.proposal()
        t += 1
        kept.count(steps=1)
        count = (threat.radius * t / steps - 1e-6).ceil()
        x = threat._replace(radius=count).furthest(x0, slope)
