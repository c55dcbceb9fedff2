"""Law suites for modules, instruments, claims and pictures: the library's own, and anybody else's.

Each suite takes one thing and holds it to every law of its kind; the first broken law raises
`BrokenLaw`, which names the law, the culprit and the numbers. A law that cannot hold is skipped by
name, with a reason: `check_part(model, x, skip={"independence": "attends over the batch"})`.
"""

from vademecum.testing.claims import CLAIM_LAWS, check_claim
from vademecum.testing.instruments import INSTRUMENT_LAWS, awkward_models, check_instrument
from vademecum.testing.laws import BrokenLaw
from vademecum.testing.parts import PART_LAWS, check_part
from vademecum.testing.pictures import PICTURE_LAWS, check_picture

__all__ = [
    "BrokenLaw",
    # suites
    "check_claim", "check_instrument", "check_part", "check_picture",
    # what they check, and on what
    "CLAIM_LAWS", "INSTRUMENT_LAWS", "PART_LAWS", "PICTURE_LAWS", "awkward_models",
]  # fmt: skip
