"""Drawings: shared, kept, forgotten when nobody waits."""

import threading
import time

import pytest
from starlette.testclient import TestClient

from tests.atlas.test_attacks import HOST, OURS, TOKEN
from vademecum.atlas.application import application
from vademecum.atlas.drawings import Drawings, draw_picture, positions
from vademecum.claims import Workers
from vademecum.claims.workers import Call
from vademecum.errors import UsageError
from vademecum.pictures import find_picture

PICTURE = find_picture("approximation.barron_rate")


class Queue:
    """Instead of processes: what was asked for, in order, answered by hand."""

    def __init__(self):
        self.calls: list[Call] = []

    def ask(self, fn, args, *, key="", rank=0):
        self.calls.append(Call((fn, args, {}), key, rank))
        return self.calls[-1]


@pytest.fixture
def by_hand(drawings, monkeypatch):
    queue = Queue()
    monkeypatch.setattr(drawings, "_workers", queue)
    yield drawings, queue.calls
    monkeypatch.undo()


def answer(call, drawing):
    assert call.set_running_or_notify_cancel()
    call.set_result(drawing)


def test_a_drawing_is_what_the_function_draws(drawings):
    drawn = drawings.svg(PICTURE, {"waves": 2})
    assert drawn == draw_picture(PICTURE.id, PICTURE.at({"waves": 2}))
    with pytest.raises(UsageError, match="waves must be an integer from 1 to 4, got 9"):
        drawings.ask(PICTURE, {"waves": 9})


def test_equal_requests_share_one_drawing_which_is_kept(by_hand):
    drawings, calls = by_hand
    one, two = drawings.ask(PICTURE, {}), drawings.ask(PICTURE, {"waves": 1})
    other = drawings.ask(PICTURE, {"waves": 3})
    assert len(calls) == 2
    answer(calls[0], b"first")
    assert one.result(0) == two.result(0) == drawings.ask(PICTURE, {}).result(0) == b"first"
    answer(calls[1], b"third")
    assert other.result(0) == b"third"
    assert len(calls) == 2


def test_what_nobody_waits_for_is_not_begun(by_hand):
    drawings, calls = by_hand
    one, two = drawings.ask(PICTURE, {}), drawings.ask(PICTURE, {})
    one.cancel()
    assert not calls[0].cancelled()
    two.cancel()
    assert calls[0].cancelled()
    again = drawings.ask(PICTURE, {})
    answer(calls[1], b"again")
    assert again.result(0) == b"again"


def test_a_visitor_goes_before_what_is_drawn_beforehand(by_hand):
    drawings, calls = by_hand
    drawings.warm()
    assert {call.rank for call in calls} == {2}
    asked = drawings.ask(PICTURE, {})
    (same,) = [call for call in calls if call.rank == 0]
    answer(same, b"mine")
    assert asked.result(0) == b"mine"


def test_a_failure_is_told_to_all_and_not_kept(by_hand):
    drawings, calls = by_hand
    asked = [drawings.ask(PICTURE, {}) for _ in range(2)]
    calls[0].set_running_or_notify_cancel()
    calls[0].set_exception(ChildProcessError("died"))
    for future in asked:
        with pytest.raises(ChildProcessError, match="died"):
            future.result(0)
    drawings.ask(PICTURE, {})
    assert len(calls) == 2


def test_old_drawings_make_room(by_hand):
    drawings, calls = by_hand
    drawings._space = 250
    for waves in (1, 2, 3):
        drawings.ask(PICTURE, {"waves": waves})
        answer(calls[-1], bytes(100))
    drawings.ask(PICTURE, {"waves": 2})
    assert len(calls) == 3
    drawings.ask(PICTURE, {"waves": 1})
    assert len(calls) == 4


def test_files_show_each_knob_at_a_few_places():
    found = positions(PICTURE)
    assert found[0] == PICTURE.at({})
    for knob in PICTURE.knobs.values():
        values = {at[knob.name] for at in found}
        assert {knob.positions[0], knob.positions[-1], knob.default} <= values
        assert len(values) <= 6
    played = find_picture("approximation.regions_while_training")
    assert {at["step"] for at in positions(played)} == {*played.knobs["step"].positions}
    assert all(sum(at[k] != found[0][k] for k in at) <= 1 for at in found)


@pytest.fixture
def client(verdicts, drawings):
    gate = application(verdicts, drawings, token=TOKEN, hosts=[HOST], cookie="key")
    with TestClient(gate, base_url=f"http://{HOST}") as client:
        client.headers.update(OURS)
        yield client


def test_a_picture_over_http(verdicts, drawings):
    drawings, address = Drawings(1), "/pictures/approximation/barron_rate.svg"
    from vademecum.claims import select

    verdicts.claims |= {claim.id: claim for claim in select("approximation.barron_theorem")}
    gate = application(verdicts, drawings, token=TOKEN, hosts=[HOST], cookie="key")
    with TestClient(gate, base_url=f"http://{HOST}", headers=OURS) as client:
        drawn = client.get(address, params={"waves": "2"})
        assert drawn.headers["content-type"] == "image/svg+xml"
        assert drawn.content == draw_picture(PICTURE.id, PICTURE.at({"waves": 2}))
        tag = {"if-none-match": drawn.headers["etag"]}
        assert client.get(address, params={"waves": "2"}, headers=tag).status_code == 304
        for wrong, words in (("waves=9", "waves must be an integer from 1 to 4"), ("x=1", "x")):
            refused = client.get(f"{address}?{wrong}")
            assert (refused.status_code, words in refused.text) == (400, True)


def test_trials_over_http(client, verdicts):
    room = "/rooms/connectionism/novikov_bound"
    said = client.post(f"{room}/run", data={"seed": "7"})
    assert (said.status_code, "holds" in said.text, "seed 7" in said.text) == (200, True, True)
    assert verdicts.verdict("connectionism.novikov_bound") == "not run"  # elsewhere
    said = client.post(f"{room}/break/0", data={"seed": "7"})
    assert (said.status_code, "Broken" in said.text) == (200, True)
    said = client.post(f"{room}/run", data={"knob-power": "-3"})
    assert said.status_code == 400


def test_a_process_that_dies_is_told_in_words(client, monkeypatch):
    def killed(self, *_, **__):
        call = Call((), "", 0)
        threading.Timer(0.1, call.set_exception, [ChildProcessError("died (exit code -9)")]).start()
        return call

    monkeypatch.setattr(Workers, "ask", killed)
    said = client.post("/rooms/connectionism/novikov_bound/run", data={"seed": "0"})
    assert (said.status_code, "died (exit code -9)" in said.text) == (200, True)
    said = client.post("/rooms/connectionism/novikov_bound/break/0", data={"seed": "0"})
    assert (said.status_code, said.text) == (503, "This took too much: died (exit code -9).")


def test_checks_over_http(client, fakes, verdicts):
    verdicts.claims.clear()
    verdicts._jobs = 2  # one for each
    verdicts.claims |= {fakes[name].id: fakes[name] for name in ("true", "hangs")}
    assert client.get("/check").json()["total"] == 0
    assert client.post("/check").json()["running"]
    while (state := client.get("/check").json())["done"] < 1:
        time.sleep(0.05)
    assert not state["stopped"]
    client.delete("/check")
    verdicts.wait()
    state = client.get("/check").json()
    assert (state["running"], state["stopped"], state["done"], state["total"]) == (
        False, True, 1, 2)  # fmt: skip
