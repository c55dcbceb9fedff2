"""Attacks: searches for a small change of an input that changes the answer."""

from vademecum.robustness.attacks.adaptive_ascent import apgd
from vademecum.robustness.attacks.ensemble import auto_attack
from vademecum.robustness.attacks.found import Attack
from vademecum.robustness.attacks.nearest_face import deepfool
from vademecum.robustness.attacks.projected_ascent import pgd
from vademecum.robustness.attacks.random_squares import square
from vademecum.robustness.attacks.single_step import fgsm

__all__ = ["Attack", "apgd", "auto_attack", "deepfool", "fgsm", "pgd", "square"]
