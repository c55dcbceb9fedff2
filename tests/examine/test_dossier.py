"""What an examination found: names, words, JSON and back."""

import json
import math

import pytest

from vademecum.examine import Dossier, Finding, Measurement, Section

SECTIONS = (
    Section(
        "curvature", "partly",
        (
            Measurement("trace", 3.5, 0.25, "loss", 64, "probes"),
            Measurement("gradient_noise_scale", math.inf, (12.0, math.inf), "examples", 10),
            Measurement("eigenvalues", (3.0, 2.0)),
            Measurement("names", ("a", "b")),
            Measurement("masked", True),
        ),
        "A sentence.", ("optimization.adam",), "<svg>1 &lt; 2</svg>", 1.25, "time", "", ("hm",),
    ),
    Section("kernel", "failed", reason="RuntimeError: no", traceback="Traceback\n  ..."),
)  # fmt: skip
FINDINGS = (Finding("Bad.", "curvature", math.nan, 2.0, "Do it.", 3.0),)
DOSSIER = Dossier(SECTIONS, FINDINGS, {"seed": 3, "gpu": None, "budget": math.inf})


def test_measurements_are_attributes_and_entries():
    section = DOSSIER["curvature"]
    assert section.trace == 3.5
    assert section["trace"].error == 0.25
    assert section.get("trace") == 3.5
    assert section.get("none") is None
    assert "trace" in section
    assert "none" not in section
    assert "curvature" in DOSSIER
    with pytest.raises(AttributeError, match="'curvature' has no measurement 'none'"):
        _ = section.none
    with pytest.raises(KeyError, match="it has: trace, gradient_noise_scale"):
        _ = section["none"]
    with pytest.raises(KeyError, match="there are: curvature, kernel"):
        _ = DOSSIER["anatomy"]


def test_dossier_goes_to_json_and_back():
    text = DOSSIER.to_json()
    assert Dossier.from_json(text).to_json() == text
    again = Dossier.from_json(text)
    assert again.sections == SECTIONS
    assert math.isnan(again.findings[0].number)
    assert again.environment == DOSSIER.environment
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_figures_are_within_or_named(tmp_path):
    text = DOSSIER.to_json(figures=False)
    assert "figures/curvature.svg" in text
    assert "<svg>" not in text
    assert Dossier.from_json(text)["curvature"].figure is None
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "curvature.svg").write_text("<svg/>")
    assert Dossier.from_json(text, folder=tmp_path)["curvature"].figure == "<svg/>"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "text must be JSON"),
        ("[]", "text must be a dossier"),
        ('{"format": "vademecum dossier", "version": 99}', "version 2, got 99"),
        (DOSSIER.to_json().replace('"partly"', '"nearly"'), "status must be one of"),
        (DOSSIER.to_json().replace('"sample"', '"luck"', 1), "error_of must be one of sample, "),
    ],
)
def test_what_is_no_dossier_is_refused(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        Dossier.from_json(text)


def test_representations_are_one_line():
    assert repr(DOSSIER) == "Dossier(2 sections: 1 partly, 1 failed; 1 finding)"
    assert repr(SECTIONS[0]) == "Section(curvature: partly, 5 measurements)"
    assert "\n" not in repr(FINDINGS[0])
    words = [measurement.words() for measurement in SECTIONS[0].measurements]
    assert words[:3] == ["3.5 ± 0.25 loss", "inf (12 to inf) examples", "[3, 2]"]


def test_print_shows_everything(capsys):
    DOSSIER.print()
    out = capsys.readouterr().out
    assert "Bad." in out
    assert "trace" in out
    assert "RuntimeError: no" in out
