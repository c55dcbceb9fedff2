"""An engine of our own: a tape on which forward and reverse mode run, with every cost counted."""

from vademecum.gradients.tape.drawing import draw_tape
from vademecum.gradients.tape.engine import Tape

__all__ = ["Tape", "draw_tape"]
