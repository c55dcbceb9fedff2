"""What an examination promises: everything is as before, the same twice, failures stay alone."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from vademecum.examine import Measurement, examine
from vademecum.examine._section import Drawing, NotApplicable, Sentence
from vademecum.examine.sections import PLANS


class Untidy(nn.Module):
    """A network whose code counts, keeps and writes wherever it can."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.ReLU())
        self.head = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.seen, self.longest, self.note = [], 0, torch.zeros(2)

    def forward(self, x):
        with torch.no_grad():
            self.calls += 1
            self.note += 1
            self.head.bias.data.add_(0.0)
        self.longest = max(self.longest, len(x))
        self.seen.append(len(x))
        return self.head(self.body(x))


class Writing(Untidy):
    """One that writes into its own weights, and into its inputs."""

    def forward(self, x):
        with torch.no_grad():
            self.head.bias.mul_(1.0001)
            x.clamp_(-1.0, 1.0)
        return super().forward(x)


def plain(value) -> Any:
    """The value with tensors as their bits, so that equal ones are equal."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.detach().numpy().tobytes()
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def state_of(model: nn.Module) -> list:
    """All that a network holds, hooks and modes included, and where random numbers are."""
    parts = []
    for name, module in model.named_modules():
        own = {k: v for k, v in vars(module).items() if not k.startswith("_")}
        hooks = [len(vars(module)[k]) for k in sorted(vars(module)) if k.endswith("_hooks")]
        parts.append((name, sorted(own.items(), key=lambda pair: pair[0]), hooks))
    tensors = [(n, t.detach().clone(), t.requires_grad, None if t.grad is None else t.grad.clone())
               for n, t in [*model.named_parameters(), *model.named_buffers()]]  # fmt: skip
    return plain([parts, tensors, torch.get_rng_state()])


def prepared(kind=Untidy) -> tuple[Any, torch.Tensor, torch.Tensor]:
    model: Any = kind().train()
    model.body[2].eval()  # a mode of its own
    model.body[0].bias.requires_grad_(False)
    model.head.register_forward_hook(lambda *_: None)
    x, y = torch.randn(20, 4), torch.arange(20) % 3
    nn.functional.cross_entropy(model(x.clone()), y).backward()
    return model, x, y


def numbers(study, clock):
    """A section that goes well."""
    draw = study.generator("numbers")
    yield Measurement("number", float(torch.rand((), generator=draw)), 0.1, "", 2, "drawn")
    yield Sentence("Well.")


@pytest.mark.parametrize("kind", [Untidy, Writing])
def test_everything_is_as_before(kind):
    model, x, y = prepared(kind)
    before, given = state_of(model), x.clone()
    mine = ["anatomy", "signal", "curvature", "kernel", "calibration"]
    examine(model, x, y, sections=mine, budget=20.0)
    assert state_of(model) == before
    assert x.equal(given)
    again, x, y = prepared()
    assert again.training
    assert not again.body[2].training


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_everything_is_as_before_after_an_end(plans, error):
    def rude(study, clock):
        study.model(study.take(4)[0])
        study.model.training = True
        study.model.head.weight.data.mul_(2.0)
        study.model.extra = 1
        study.model.body[0].weight.grad = None
        torch.rand(3)
        raise error("enough")
        yield

    plans("rude", rude)
    model, x, y = prepared()
    before = state_of(model)
    if error is RuntimeError:
        section = examine(model, x, y)["rude"]
        assert section.status == "failed"
        assert section.reason == "RuntimeError: enough"
        assert "raise error" in section.traceback
        assert any("head.weight" in note and "given back" in note for note in section.notes)
    else:
        with pytest.raises(error):
            examine(model, x, y)
    assert state_of(model) == before


def test_failing_sections_do_not_stop_others(plans):
    def partial(study, clock):
        yield Measurement("first", 1.0)
        yield Measurement("first", 2.0)
        raise ZeroDivisionError("no\nmore")

    def absent(study, clock):
        raise NotApplicable("because it has no wheels")
        yield

    def ugly(study, clock):
        yield Measurement("kept", 1)
        nothing: Any = lambda: 1 / 0  # noqa: E731
        yield Drawing(nothing)

    def misnamed(study, clock):
        yield Measurement("status", 1)

    for name, run in (("partial", partial), ("absent", absent), ("ugly", ugly),
                      ("misnamed", misnamed), ("numbers", numbers)):  # fmt: skip
        plans(name, run)
    model, x, y = prepared()
    found = examine(model, x, y)
    assert [s.status for s in found.sections] == [
        *("partly", "not applicable", "measured", "failed", "measured"),
    ]
    assert found["partial"].first == 2.0
    assert found["partial"].reason == "ZeroDivisionError: no"
    assert found["absent"].reason == "because it has no wheels"
    assert found["ugly"].figure is None
    assert "1 / 0" in found["ugly"].traceback
    assert "cannot be called 'status'" in found["misnamed"].reason
    assert found["numbers"].sentence == "Well."


def test_refusals_of_instruments_are_no_failures(plans):
    def asks(study, clock):
        from vademecum.optimization import gradient_noise

        gradient_noise(study.model, *study.take(2))
        yield

    def wrong(study, clock):
        float("x")
        yield

    plans("asks", asks)
    plans("wrong", wrong)
    model, x, y = prepared()
    found = examine(model, x, y)
    assert [s.status for s in found.sections] == ["not applicable", "failed"]
    assert "examples" in found["asks"].reason


def test_memory_that_runs_out_means_half_as_much(plans):
    tried = []

    def hungry(study, clock):
        tried.append((study.memory, study.batch))
        yield Measurement("tile", study.batch)
        if len(tried) < 2:
            raise torch.OutOfMemoryError("CUDA out of memory")

    def never(study, clock):
        raise torch.OutOfMemoryError("CUDA out of memory")
        yield

    plans("hungry", hungry)
    plans("never", never)
    model, x, y = prepared()
    found = examine(model, x, y, memory=2**20)
    assert tried == [(2**20, 128), (2**19, 64)]
    assert found["hungry"].status == "measured"
    assert found["hungry"].tile == 64
    assert found["never"].status == "failed"
    assert found["never"].reason == "memory"


def test_the_same_seed_gives_the_same_bytes():
    model, x, y = prepared()
    names = ["anatomy", "signal", "curvature", "kernel", "calibration"]

    def text(sections, seed=0):
        found = examine(model, x, y, sections=sections, budget=math.inf,
                        generator=torch.Generator().manual_seed(seed))  # fmt: skip
        return _without_times(found.to_json()), found

    (first, one), (second, _), (third, _) = text(names), text(names), text(names, 1)
    assert first == second != third
    _, two = text(["curvature"])
    assert two["curvature"].measurements == one["curvature"].measurements


def _without_times(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if '"seconds":' not in line)


def test_global_random_numbers_are_the_seed_and_stay():
    model, x, y = prepared()
    torch.manual_seed(3)
    state = torch.get_rng_state()
    one = examine(model, x, y, sections=["anatomy"])
    assert torch.get_rng_state().equal(state)
    torch.manual_seed(4)
    assert one.environment["seed"] != examine(model, x, y, sections=["anatomy"]).environment["seed"]


def test_all_sections_have_claims_that_exist():
    from vademecum.claims import select

    known = {claim.id for claim in select("*")}
    for plan in PLANS.values():
        assert plan.claims
        assert set(plan.claims) <= known, set(plan.claims) - known


def test_examine_needs_no_budget_for_a_section_that_ends(plans):
    import time

    def patient(study, clock):
        for m in clock.portions(1, 1000):
            yield Measurement("size", m)
            time.sleep(0.01 * m)

    def endless(study, clock):
        yield Measurement("calls", 0)
        while True:
            study.model(study.take(2)[0])

    plans("patient", patient)
    plans("endless", endless)
    model, x, y = prepared()
    start = time.perf_counter()
    found = examine(model, x, y, budget=1.0)
    assert time.perf_counter() - start < 3.0
    assert [s.status for s in found.sections] == ["partly", "partly"]
    assert "of 1000 examples" in found["patient"].reason
    assert "time was over" in found["endless"].reason


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # torch, of passes
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_are_no_failures(reentrant):
    """What is computed again cannot be watched, nor differentiated twice."""

    class Again(nn.Sequential):
        def forward(self, input):
            first, body, head = self
            return head(checkpoint(body, first(input), use_reentrant=reentrant))

    body = nn.Sequential(nn.ReLU(), nn.Linear(6, 6), nn.ReLU())
    model = Again(nn.Linear(4, 6), body, nn.Linear(6, 3))
    names = ["signal", "curvature", "kernel"]
    found = examine(model, torch.randn(20, 4), torch.arange(20) % 3, sections=names)
    for name in ["signal", "curvature", *(["kernel"] if reentrant else [])]:
        assert found[name].status == "not applicable"
        assert "use" in found[name].reason
        assert "checkpoints" in found[name].reason
    assert found["kernel"].status == ("not applicable" if reentrant else "measured")
