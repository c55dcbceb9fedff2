"""Rooms keep out of the private modules of other rooms."""

import ast
from pathlib import Path

import vademecum

PACKAGE = Path(vademecum.__file__).parent
# What is still taken from inside other rooms; what two rooms want belongs on the floor.
REACHES = {
    *("foundations._lanczos", "foundations._probes"),
    *("gradients._compared_passes", "gradients._independent_rows"),
    *("gradients._layer_rules", "gradients._recorded_pass"),
    *("optimization._forward_loss", "optimization._krylov"),
}


def test_rooms_do_not_reach_into_private_modules_of_others():
    found = set()
    for room in vademecum.ROOMS:
        for path in (PACKAGE / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
                _, other, *rest = (*module.split("."), "", "")
                if other in vademecum.ROOMS and other != room:
                    private = [i for i, name in enumerate(rest) if name.startswith("_")]
                    if private:
                        found.add(".".join([other, *rest[: private[0] + 1]]))
    assert found <= REACHES
