"""Where the sliders of a picture can stand."""

import pytest

from vademecum.pictures import Range


@pytest.mark.parametrize(
    ("span", "positions"),
    [
        (Range(1, 4), (1, 2, 3, 4)),
        (Range(0, 10, 4), (0, 4, 8)),
        (Range(0.1, 0.5, 0.1), (0.1, 0.2, 0.3, 0.4, 0.5)),
        (Range(1, 64, 2, log=True), (1, 2, 4, 8, 16, 32, 64)),
        (Range(0.001, 0.1, 10, log=True), (0.001, 0.01, 0.1)),
        (Range(-1.0, 1.0, 0.5), (-1.0, -0.5, 0.0, 0.5, 1.0)),
    ],
)
def test_positions(span, positions):
    assert span.positions() == positions


@pytest.mark.parametrize(
    ("span", "must"),
    [
        (Range(1, 64, log=True), "step > 1 and low > 0 where log is true"),
        (Range(1.0, 64.0, 0.5, log=True), "step > 1 and low > 0 where log is true"),
        (Range(0, 64, 2, log=True), "step > 1 and low > 0 where log is true"),
        (Range(1, 4, 0), "step > 0"),
        (Range(1.0, 4.0, 1e-14), "step > 0"),
    ],
)
def test_a_slider_that_would_never_end_is_refused(span, must):
    with pytest.raises(ValueError, match=f"^Range must have a {must}, got Range\\(low="):
        span.positions()
