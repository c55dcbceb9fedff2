"""Work in portions keeps to its limit, what it takes whatever their number counted in."""

import pytest
import torch

from vademecum.robustness._rows import in_portions


def test_portions_leave_room_for_what_all_take():
    sizes = []

    def work(x):
        sizes.append(len(x))
        table = torch.ones(1000)
        return x + table[0] - 1, x * table[1]

    x = torch.arange(40.0).reshape(20, 2)
    same, again = in_portions(work, x, memory=4000 + 3 * 24 + 100)
    assert torch.equal(same, x)
    assert torch.equal(again, x)
    assert max(sizes[2:]) < 20  # after two looks at what it takes
    sizes.clear()
    in_portions(work, x, memory=None)
    assert sizes == [20]
    with pytest.raises(ValueError, match=r"memory must be >= \d+ bytes for one example, got 3000"):
        in_portions(work, x, memory=3000)
