import pytest

from vademecum.progress import ticking


@pytest.mark.parametrize("total", [7, None])
def test_a_bar_on_standard_error_that_counts(capsys, total):
    with ticking("products", total, progress=True) as tick:
        tick(2)
        tick(3)
    out, err = capsys.readouterr()
    assert out == ""
    assert f"5/{total or '?'} products" in err


def test_no_bar_unless_asked_for(capsys):
    with ticking("products", 7, progress=False) as tick:
        tick(7)
    assert capsys.readouterr() == ("", "")
