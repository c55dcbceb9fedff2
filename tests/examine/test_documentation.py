"""What the page on dossiers shows is so: its examples, its schema, its table of findings."""

import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench.outside.page import run_examples
from vademecum.examine import examine
from vademecum.examine.findings import RULES
from vademecum.examine.sections import PLANS

PAGE = Path(__file__).parents[2] / "docs" / "examine.md"
KINDS: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
    "number": (int, float), "integer": int,
}  # fmt: skip


def schema() -> dict[str, Any]:
    (text,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return json.loads(text)


def faults(value: Any, rule: dict[str, Any], where: str, whole: dict[str, Any]) -> list[str]:
    """What of a value is not as a schema says, for the keywords that ours has."""
    if "$ref" in rule:
        return faults(value, whole["$defs"][rule["$ref"].rpartition("/")[2]], where, whole)
    if "anyOf" in rule:
        tried = [faults(value, each, where, whole) for each in rule["anyOf"]]
        return [] if [] in tried else tried[0]
    found = []
    if "const" in rule and value != rule["const"]:
        found.append(f"{where} is {value!r}")
    if "enum" in rule and value not in rule["enum"]:
        found.append(f"{where} is {value!r}")
    if "type" in rule:
        kinds = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
        if not any(_is_a(value, kind) for kind in kinds):
            return [*found, f"{where} is a {type(value).__name__}"]
    if "pattern" in rule and not re.search(rule["pattern"], value):
        found.append(f"{where} is {value!r}")
    if isinstance(value, list):
        low, high = rule.get("minItems", 0), rule.get("maxItems", len(value))
        found += [] if low <= len(value) <= high else [f"{where} has {len(value)}"]
        for i, each in enumerate(value):
            found += faults(each, rule.get("items", {}), f"{where}[{i}]", whole)
    if isinstance(value, dict):
        known = rule.get("properties", {})
        found += [f"{where} lacks {key}" for key in rule.get("required", ()) if key not in value]
        for key, each in value.items():
            if key not in known and not rule.get("additionalProperties", True):
                found.append(f"{where} has {key}")
            found += faults(each, known.get(key, {}), f"{where}.{key}", whole)
    return found


def _is_a(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, KINDS[kind])


def test_dossiers_keep_the_schema():
    x, y = torch.rand(40, 1, 4, 4), torch.arange(40) % 3
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    draw = torch.Generator().manual_seed(0)
    dossier = examine(model, x, y, test=(x, y), generator=draw, budget=20)
    document = json.loads(dossier.to_json())
    assert len(document["sections"]) == len(PLANS)
    rules = schema()
    assert not faults(document, rules, "dossier", rules)
    for spoil in (
        lambda d: d.update(version=1),
        lambda d: d["sections"][0]["measurements"][0].update(error_of="luck"),
        lambda d: d["sections"][0].update(status="well"),
        lambda d: d["sections"][0]["measurements"][0].update(error=[1.0]),
        lambda d: d["sections"][0].pop("claims"),
        lambda d: d.update(extra=1),
    ):
        broken = json.loads(dossier.to_json())
        spoil(broken)
        assert len(faults(broken, rules, "dossier", rules)) == 1


def test_the_examples_of_the_page_work():
    failed, tried = run_examples(PAGE)
    assert tried > 10
    assert failed == 0


def test_the_page_has_every_section_and_threshold():
    text = PAGE.read_text()
    assert all(f"| {name} |" in text for name in PLANS)
    table = text.partition("| finding |")[2].partition("\n\n")[0]
    told = {float(word) for word in re.findall(r"[\d.]+(?= \||;)", table)}
    flags = {"masking"}
    assert {abs(rule.threshold) for rule in RULES if rule.name not in flags} <= told
