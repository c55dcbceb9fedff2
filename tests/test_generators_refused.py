"""Whatever takes a generator refuses what is none, in the same words."""

import pytest

from tests.test_generators import CALLS, drawing


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", drawing())
def test_what_is_no_generator_is_refused(name):
    with pytest.raises(ValueError, match=r"^generator must be a torch\.Generator or None, got 3$"):
        CALLS[name](3)  # pyright: ignore
