"""Transfer of adversarial examples between networks, one entry at a time."""
# pyright: reportArgumentType=false

import pytest
import torch
from torch import nn

from tests.robustness.digit_networks import RADIUS, digits, honest
from vademecum.robustness import fgsm, pgd, transfer_matrix


def plane(*weights: tuple[float, float]) -> list[nn.Module]:
    models = []
    for w in weights:
        model = nn.Linear(2, 2, bias=False)
        model.weight.data = torch.tensor([list(w), [0.0, 0.0]])
        models.append(model)
    return models


def test_transfer_matrix_is_made_of_attacks_and_predictions():
    _, _, x, y = digits()
    models = {name: honest(name) for name in ("relu", "tanh", "linear")}
    found = transfer_matrix(models, x, y, radius=RADIUS)
    assert found.names == ("relu", "tanh", "linear")
    for i, source in enumerate(models.values()):
        made = fgsm(source, x, y, radius=RADIUS).x
        for j, judge in enumerate(models.values()):
            error = (judge(made).argmax(1) != y).float().mean()
            assert found.error[i, j] == pytest.approx(float(error), abs=1e-6)
    clean = [float((model(x).argmax(1) != y).float().mean()) for model in models.values()]
    assert found.clean.tolist() == pytest.approx(clean, abs=1e-6)
    assert (found.error.diag() > found.noise + 0.1).all()
    assert (found.error >= found.clean).all()


def test_rows_make_and_columns_judge():
    x, y = torch.tensor([[0.5, 0.1]]), torch.tensor([0])
    steep, flat = plane((1.0, 0.0), (1.0, 6.0))
    found = transfer_matrix([steep, flat], x, y, radius=0.55, box=None)
    # (-0.05, 0.1) has the scores -0.05 and 0.55; (-0.05, -0.45) has -0.05 and -2.75
    assert found.error.tolist() == [[1.0, 0.0], [1.0, 1.0]]
    assert found.names == ("0", "1")


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_noise_has_the_full_radius(norm):
    seen = []

    class Looking(nn.Module):
        def forward(self, x):
            if not torch.is_grad_enabled():
                seen.append(x.detach().clone())
            return torch.stack([x.sum(1), -x.sum(1)], 1)

    x, y = torch.full((50, 6), 0.5).double(), torch.zeros(50).long()
    radius = torch.linspace(0.1, 0.3, 50).double()
    source = torch.Generator().manual_seed(0)
    transfer_matrix([Looking()], x, y, norm=norm, radius=radius, generator=source)
    noise = (seen[-1] - x).flatten(1)
    p = {"linf": torch.inf, "l2": 2, "l1": 1}[norm]
    size = torch.linalg.vector_norm(noise, p, dim=1)
    assert torch.allclose(size, radius, rtol=1e-9)
    assert (size <= radius).all()
    if norm == "linf":
        assert torch.allclose(noise.abs(), radius[:, None].expand_as(noise))
        assert abs(noise.sign().mean()) < 0.3
    if norm == "l1":
        assert ((noise != 0).sum(1) == 1).all()


def test_attacks_that_stop_early_transfer_less():
    _, _, x, y = digits()
    models = [honest("relu"), honest("residual")]
    full = transfer_matrix(models, x, y, radius=RADIUS).error
    short = transfer_matrix(models, x, y, radius=RADIUS, attack=pgd).error
    assert short[0, 0] >= full[0, 0] - 0.02
    assert short[0, 1] < full[0, 1]


def test_bad_arguments_are_refused(unchecked):
    x, y = torch.rand(3, 2), torch.zeros(3).long()
    (model,) = plane((1.0, 0.0))
    with pytest.raises(ValueError, match="models must hold at least one, got none"):
        transfer_matrix([], x, y, radius=0.1)
    with pytest.raises(ValueError, match="models must be a list of modules, got Linear"):
        transfer_matrix(model, x, y, radius=0.1)
    with pytest.raises(ValueError, match=r"radius must be >= 0, got -0.1"):
        transfer_matrix([model], x, y, radius=-0.1)
    with pytest.raises(ValueError, match="y must be 3 integers, one for each example"):
        transfer_matrix([model], x, y.float(), radius=0.1)
    with pytest.raises(ValueError, match="y must be between 0 and 1"):
        transfer_matrix([model], x, y + 2, radius=0.1)
