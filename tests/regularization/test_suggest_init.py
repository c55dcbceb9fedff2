"""Plans for the scales of weights: closed forms, deep networks that train by them, and errors."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.convolution import ResNet
from vademecum.regularization import InitPlan, signal_propagation, suggest_init
from vademecum.testing.laws import changes, snapshot


def deep(depth: int, width: int) -> nn.Sequential:
    layers = [layer for _ in range(depth - 1) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 4))


def in_scale(model: nn.Module, plan: InitPlan, x: Tensor) -> dict[str, float]:
    """For each layer with a weight of the plan, its second moment over its target."""
    targets = {s.parameter: s.target for s in plan.steps if s.target}
    return {
        r.name: r.forward.second_moment / targets[f"{r.name}.weight"]
        for r in signal_propagation(model, x).rows
        if f"{r.name}.weight" in targets and r.call == 0
    }


def test_suggest_init_is_he_and_lecun_by_theory():
    torch.manual_seed(0)
    middle = nn.Linear(50, 20)
    model = nn.Sequential(nn.Linear(30, 50), nn.ReLU(), middle, nn.Linear(20, 7))
    x = torch.randn(40, 30)
    plan = suggest_init(model, x, method="mean-field")
    scales = {s.parameter: s.proposed for s in plan.steps}
    q = float(x.square().mean())
    wanted = {"0": 1 / (30 * q), "2": 2 / 50, "3": 1 / 20}
    for name, v in wanted.items():
        assert scales[f"{name}.weight"] == pytest.approx(math.sqrt(v), rel=1e-3)
        assert scales[f"{name}.bias"] == 0
    before = middle.weight.detach().clone()
    assert plan.apply_(model) is model
    ratio = middle.weight.detach() / before
    assert ratio.std() < 1e-6  # multiplied, not drawn anew
    assert float(middle.weight.detach().square().mean()) == pytest.approx(2 / 50, rel=1e-3)
    assert plan.kept == ()


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.GELU])
def test_data_gives_each_layer_its_second_moment(activation):
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), activation(), nn.Conv2d(8, 6, 3, stride=2), activation(),
        nn.Flatten(), nn.Linear(54, 5),
    )  # fmt: skip
    x = 1 + 3 * torch.randn(20, 3, 8, 8)
    plan = suggest_init(model, x, method="data")
    before = snapshot(model)
    copied = plan.apply_(copy.deepcopy(model))
    assert not list(changes(before, snapshot(model)))
    assert set(in_scale(copied, plan, x)) == {"0", "2", "5"}
    assert all(v == pytest.approx(1, rel=1e-4) for v in in_scale(copied, plan, x).values())


def test_a_hundred_layers_forget_their_input_by_default_and_train_by_the_plan():
    """The correlations of torch's default exceed 0.999; the plan's network fits its labels."""
    torch.manual_seed(0)
    model, x = deep(100, 64), torch.randn(32, 64)
    y = torch.arange(32) % 2
    default = signal_propagation(model, x, y)
    correlation = default.rows[-1].forward.correlation
    assert correlation is not None
    assert correlation > 0.999
    last, first = default.rows[-1].backward, default.rows[0].backward
    assert last is not None
    assert first is not None
    assert first.second_moment < 1e-40 * last.second_moment
    plan = suggest_init(model, x, method="data")
    planned = plan.apply_(copy.deepcopy(model))
    ratios = in_scale(planned, plan, x)
    assert len(ratios) == 100
    assert all(0.5 < v < 2 for v in ratios.values())
    assert best_loss(model, x, y, 40) > 0.69  # nothing but the share of each label is learned
    assert best_loss(planned, x, y, 60) < 0.4


def best_loss(model: nn.Module, x: Tensor, y: Tensor, steps: int) -> float:
    """The least loss on the way of a training run."""
    descent = torch.optim.Adam(model.parameters(), 3e-4, fused=True)
    seen: list[float] = []
    for _ in range(steps):
        descent.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        descent.step()
        seen.append(float(loss.detach()))
    return min(seen)


class Residual(nn.Module):
    def __init__(self, depth: int, d: int):
        super().__init__()
        self.stem = nn.Linear(d, d)
        self.branches = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
            for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for branch in self.branches:
            x = x + branch(x)
        return x


@pytest.mark.parametrize("method", ["mean-field", "data"])
def test_residual_branches_get_one_over_the_root_of_the_depth(method):
    torch.manual_seed(2)
    model, x = Residual(9, 200), torch.randn(30, 200)
    plan = suggest_init(model, x, method=method)
    assert plan.depth == 9
    ends = [s for s in plan.steps if "residual" in s.reason]
    assert [s.parameter for s in ends] == [f"branches.{i}.3.weight" for i in range(9)]
    assert all(s.target == pytest.approx(1 / 9, rel=1e-3) for s in ends)
    planned = plan.apply_(model)
    sums = [r for r in signal_propagation(planned, x).rows if r.kind == "add"]
    for i, row in enumerate(sums):  # branches are nearly orthogonal to the stream
        assert row.forward.second_moment == pytest.approx(1 + (i + 1) / 9, rel=0.1)
    # what a full-sized branch would have: E gelu(z)^2 = 0.425 for 400 inputs
    wide = math.sqrt(1 / (400 * 0.4252))
    assert all(s.proposed == pytest.approx(wide / 3, rel=0.1) for s in ends)


def test_batch_normalised_branches_are_scaled_by_their_last_factors():
    torch.manual_seed(0)
    model, x = ResNet(18, 10), torch.randn(4, 3, 32, 32)
    plan = suggest_init(model, x, method="data")
    ends = [s for s in plan.steps if "residual" in s.reason]
    assert plan.depth == len(ends) == 8
    assert {s.parameter.rpartition(".")[0][-3:] for s in ends} == {"bn2"}
    planned = plan.apply_(copy.deepcopy(model))
    ratios = in_scale(planned, plan, x)
    assert len(ratios) == 21 + 8
    assert all(0.5 < v < 2 for v in ratios.values())


def test_attention_of_torch_is_scaled_at_its_end():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = torch.randn(8, 6, 32)
    plan = suggest_init(model, x, method="data")
    ends = [s.parameter for s in plan.steps if "residual" in s.reason]
    assert plan.depth == 4
    assert [name.partition(".")[2] for name in ends] == [
        "0.self_attn.out_proj.weight", "0.linear2.weight", "1.self_attn.out_proj.weight",
        "1.linear2.weight",
    ]  # fmt: skip
    assert "layers.0.self_attn.in_proj_weight" in plan.kept


class Chained(nn.Module):
    """Attention six times, each of what the one before it gave."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        return self.signals(x)[-1]

    def signals(self, x: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        for layer in self.layers:
            x = layer(x, x, x, need_weights=False)[0]
            found.append(x)
        return found


def test_attention_after_attention_is_in_scale():
    """In few passes: each layer is scaled on what those before it give by then."""
    torch.manual_seed(0)
    model, x = Chained(), torch.randn(5, 3, 8)
    planned = suggest_init(model, x, method="data").apply_(model)
    assert isinstance(planned, Chained)
    for h in planned.signals(x):
        assert float(h.detach().square().mean()) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("late", [False, True])
def test_branches_beside_a_shortcut_with_weights_are_as_large_as_its_share(late):
    """The shortcut has second moment 1, whether it is computed before the branch or after it."""

    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.shortcut = nn.Linear(30, 20)
            self.branch = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 20))
            self.again = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 20))

        def forward(self, x: Tensor) -> Tensor:
            h = self.branch(x) + self.shortcut(x) if late else self.shortcut(x) + self.branch(x)
            return h + self.again(h)

    torch.manual_seed(3)
    model, x = Beside(), 3 * torch.randn(50, 30)
    plan = suggest_init(model, x, method="data")
    targets = {s.parameter: s.target for s in plan.steps if s.target}
    assert plan.depth == 2
    assert targets.pop("branch.2.weight") == pytest.approx(1 / 2, rel=1e-3)
    assert targets.pop("again.2.weight") == pytest.approx(1 / 2, rel=1e-3)
    assert set(targets.values()) == {1.0}
    assert all(
        v == pytest.approx(1, rel=1e-3) for v in in_scale(plan.apply_(model), plan, x).values()
    )


def test_tied_embeddings_are_scaled_where_they_are_the_last_layer():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16)
            self.head = nn.Linear(16, 20, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.norm(self.embed(x)))

    torch.manual_seed(0)
    model, x = Tied(), torch.arange(40).view(5, 8) % 20
    plan = suggest_init(model, x, method="data")
    assert [s.parameter for s in plan.steps] == ["embed.weight"]
    assert "head.weight" not in plan.kept
    rows = signal_propagation(plan.apply_(model), x).rows
    assert rows[-1].forward.second_moment == pytest.approx(1, rel=1e-3)


def test_zeros_stay_zeros():
    end = nn.Linear(4, 2)
    nn.init.zeros_(end.weight)
    model = nn.Sequential(nn.Linear(4, 4), end)
    plan = suggest_init(model, torch.randn(5, 4), method="data")
    assert "1.weight" in plan.kept
    assert "0.weight" in plan.table()


def test_bad_input_is_named(unchecked):
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    with pytest.raises(ValueError, match="method must be one of 'mean-field', 'data', got 'he'"):
        suggest_init(model, x, method="he")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="model must have weights of linear maps that meet x"):
        suggest_init(nn.ReLU(), x)
    with pytest.raises(ValueError, match="x must be finite"):
        suggest_init(model, x / 0)
    plan = suggest_init(model, x)
    with pytest.raises(ValueError, match="model must be as it was when the plan was made, with b"):
        plan.apply_(nn.ReLU())
    plan.apply_(model)
    with pytest.raises(ValueError, match=r"bias of scale .* got 0"):
        plan.apply_(model)
