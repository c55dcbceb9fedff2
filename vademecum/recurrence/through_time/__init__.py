"""Gradients that run back through the steps of a recurrent network, and how they fade or grow."""

from vademecum.recurrence.through_time.adjoints import BPTT, bptt
from vademecum.recurrence.through_time.profile_drawing import draw_jacobian_profile
from vademecum.recurrence.through_time.profiles import JacobianProfile, jacobian_profile

__all__ = ["BPTT", "JacobianProfile", "bptt", "draw_jacobian_profile", "jacobian_profile"]
