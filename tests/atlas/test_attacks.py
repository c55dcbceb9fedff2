"""Those who should not get in, and those who send nonsense: every route, refused with words."""

import logging
import re
import socket
import threading
import time

import pytest
import uvicorn
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from vademecum.atlas.application import application
from vademecum.atlas.gate import LONGEST
from vademecum.claims import Workers

TOKEN = "the-secret-of-this-test"
HOST = "127.0.0.1:2718"
OURS = {"host": HOST, "origin": f"http://{HOST}", "cookie": f"key={TOKEN}"}
REAL = {
    "room": "connectionism", "name": "novikov_bound", "index": "0", "module": "vademecum.files",
    "form": "cheat", "kind": "html",
}  # fmt: skip


@pytest.fixture
def gate(verdicts, drawings, monkeypatch):
    """The application, in which nothing may run or be drawn."""

    def never(*_, **__):
        raise AssertionError("something ran")

    monkeypatch.setattr(Workers, "ask", never)
    return application(verdicts, drawings, token=TOKEN, hosts=[HOST], cookie="key")


@pytest.fixture
def client(gate):
    with TestClient(gate, base_url=f"http://{HOST}", follow_redirects=False) as client:
        yield client


def routes(app) -> list[tuple[str, str]]:
    """Every method and path of an application, placeholders filled in with what there is."""
    found = []
    for route in app.routes:
        if isinstance(route, Mount):
            found.append(("GET", f"{route.path}/atlas.css"))
        else:
            assert isinstance(route, Route)  # a new kind needs a new test
            path = re.sub(r"\{(\w+)\}", lambda found: REAL[found[1]], route.path)
            found += [(method, path) for method in route.methods or ()]
    return sorted(set(found))


STRANGERS = {
    "no token": {"cookie": ""},
    "a wrong token": {"cookie": "key=wrong"},
    "half the token": {"cookie": f"key={TOKEN[:10]}"},
    "a cookie that cannot be read": {"cookie": 'key="; ;;=,'},
    "a foreign origin": {"origin": "http://evil.example"},
    "a null origin": {"origin": "null"},
    "our host as another port's origin": {"origin": "http://127.0.0.1:9"},
    "a foreign host": {"host": "evil.example"},
    "a foreign port": {"host": "127.0.0.1:9"},
    "no host": {"host": ""},
}


@pytest.mark.parametrize("who", STRANGERS)
def test_strangers_get_no_route_at_all(gate, client, who):
    tried = routes(gate.app)
    assert {"GET", "HEAD", "POST", "DELETE"} <= {method for method, _ in tried}
    assert len({path for _, path in tried}) >= 15
    for method, path in [*tried, ("GET", "/a/b/c/d"), ("OPTIONS", "/"), ("PUT", "/check")]:
        answer = client.request(method, path, headers=OURS | STRANGERS[who])
        assert answer.status_code in (401, 403), (method, path)
        if who not in ("a foreign host", "a foreign port", "no host"):
            answer = client.request(method, f"{path}?token=wrong", headers=OURS | STRANGERS[who])
            assert answer.status_code in (401, 403), (method, path)


def test_what_changes_something_must_say_where_it_comes_from(gate, client):
    for method, path in routes(gate.app):
        if method not in ("GET", "HEAD"):
            headers = {k: v for k, v in OURS.items() if k != "origin"}
            assert client.request(method, path, headers=headers).status_code == 403


def test_bodies_are_refused_before_they_are_read(gate, client):
    lengths = {str(LONGEST + 1): 413, "9" * 5000: 413, "-1": 411, "many": 411, "٣": 411}
    for method, path in routes(gate.app):
        for length, status in lengths.items():
            headers = OURS | {"content-length": length.encode()}
            assert client.request(method, path, headers=headers).status_code == status
        chunked = OURS | {"transfer-encoding": "chunked"}
        assert client.request(method, path, headers=chunked).status_code == 411


RUN, BREAK = "/rooms/connectionism/novikov_bound/run", "/rooms/connectionism/novikov_bound/break/"
NUMBERS = ["-" * 20000 + "1", "9" * 400 + "x", "", "nan", "[" * 900, "\x00", "٣" * 20, "1e999999"]


@pytest.mark.parametrize("number", NUMBERS, ids=[repr(n[:9]) for n in NUMBERS])
def test_numbers_that_are_none(client, number):
    for path in (RUN, f"{BREAK}0"):
        assert client.post(path, data={"seed": number}, headers=OURS).status_code == 400
    answer = client.post(RUN, data={"knob-power": number}, headers=OURS)
    assert answer.status_code == 400
    assert len(answer.text) < 300
    picture = "/pictures/connectionism/completed_digit"
    for address, in_a_page in ((picture, True), (f"{picture}.svg", False)):
        answer = client.get(address, params={"stored": number}, headers=OURS)
        assert answer.status_code == 400
        assert ("<nav" in answer.text) == in_a_page


def test_foils_that_there_are_not(client):
    for index in ("abc", "99", "-1", "0x1", "٣", "1" * 5000, "0;1", "%00"):
        answer = client.post(BREAK + index, data={"seed": "0"}, headers=OURS)
        assert answer.status_code == 404, index


def test_choices_that_there_are_not(client):
    for choice in ("abc", "99", "-1", "9" * 5000):
        path = "/rooms/connectionism/cover_counting/run"
        answer = client.post(path, data={"knob-formula": choice}, headers=OURS)
        assert answer.status_code == 400, choice


def test_forms_that_are_none(client):
    for data in ({"knob-nothing": "1"}, {"power": "2"}, {"seed": "0", "a" * 9000: ""}):
        answer = client.post(RUN, data=data, headers=OURS)
        assert (answer.status_code, "there is no field" in answer.text) == (400, True)
    for kind in ("application/json", "multipart/form-data; boundary=x", "text/plain"):
        headers = OURS | {"content-type": kind}
        assert client.post(RUN, content=b"seed=0", headers=headers).status_code == 415
    answer = client.post(RUN, content=b"\xff\x00%zz=&&&=", headers=OURS)
    assert answer.status_code == 400


@pytest.mark.parametrize("path", [
    "/nowhere", "/a/b/c/d/e/f", "/rooms/<b>", "/rooms/linear/x/y/z", "/rooms/%00", "/rooms//x",
    "/source/os", "/source/vademecum%2f..%2fos", "/source/..%2f..%2fetc%2fpasswd", "/errata/",
    "/pictures/linear/none", "/pictures/linear/none.svg", "/figures/x.svg", "/figures/a.b.svg",
    "/static/none.js", "/static/../pages.py", "/static/%2e%2e/pages.py", "/static/", "/static",
    "/static/%00", "/%ff%fe", "/search.js", "/check/x",
])  # fmt: skip
def test_what_does_not_exist_is_said_in_a_page(client, path):
    answer = client.get(path, headers=OURS)
    assert answer.status_code == 404
    assert "<nav" in answer.text
    assert "<b>" not in answer.text


def test_wrong_methods(gate, client):
    known: dict[str, set[str]] = {}
    for method, path in routes(gate.app):
        known.setdefault(path, set()).add(method)
    for path, methods in known.items():
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"} - methods:
            assert client.request(method, path, headers=OURS).status_code == 405, (method, path)


# What never reaches the application: a real server on a socket


class Errors(logging.Handler):
    """What was logged."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.records = list[logging.LogRecord]()

    def emit(self, record):
        self.records.append(record)


@pytest.fixture
def port(gate):
    """The port of a server whose log must stay empty."""
    bound = socket.create_server(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    gate.hosts = frozenset({f"127.0.0.1:{port}"})
    gate.origins = frozenset({f"http://127.0.0.1:{port}"})
    settings = uvicorn.Config(gate, log_level="error", log_config=None, ws="none", lifespan="off")
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    errors = Errors()
    logging.getLogger().addHandler(errors)
    thread.start()
    yield port
    server.should_exit = True
    thread.join()
    logging.getLogger().removeHandler(errors)
    bound.close()
    assert not errors.records


def say(port: int, words: bytes) -> bytes:
    """The first line of the answer to raw bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as visitor:
        visitor.sendall(words.replace(b"HOST", b"127.0.0.1:%d" % port))
        return visitor.recv(65536).partition(b"\r\n")[0]


KEY = f"Cookie: key={TOKEN}\r\n".encode()
RAW = {
    "no request": (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b" 400 "),
    "a null byte in the path": (b"GET /\x00 HTTP/1.1\r\nHost: HOST\r\n\r\n", b" 400 "),
    "a byte that is no letter": (b"GET /\xff HTTP/1.1\r\nHost: HOST\r\n\r\n", b" 400 "),
    "two slashes": (b"GET //evil.example/ HTTP/1.1\r\nHost: HOST\r\n" + KEY + b"\r\n", b" 404 "),
    "bad percent": (b"GET /%zz%f HTTP/1.1\r\nHost: HOST\r\n" + KEY + b"\r\n", b" 404 "),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: HOST\r\nHost: HOST\r\n\r\n", b" 400 "),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", b" 400 "),
    "a long header": (b"GET / HTTP/1.1\r\nHost: HOST\r\nX: " + b"x" * 200000, b" 400 "),
    "another host's address": (b"GET http://evil/ HTTP/1.1\r\nHost: evil\r\n\r\n", b" 403 "),
    "every option": (b"OPTIONS * HTTP/1.1\r\nHost: HOST\r\n\r\n", b" 401 "),
    "a long body": (
        b"POST /check HTTP/1.1\r\nHost: HOST\r\nOrigin: http://HOST\r\n" + KEY
        + b"Content-Length: 99999999\r\n\r\n" + b"x" * 1000, b" 413 "),
    "a body without an end": (
        b"POST /check HTTP/1.1\r\nHost: HOST\r\nOrigin: http://HOST\r\n" + KEY
        + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n", b" 411 "),
    "a websocket of a stranger": (
        b"GET /check HTTP/1.1\r\nHost: HOST\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n", b" 401 "),
    "a websocket of ours": (
        b"GET /nowhere HTTP/1.1\r\nHost: HOST\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        + KEY + b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n", b" 404 "),
}  # fmt: skip


@pytest.mark.parametrize("what", RAW)
def test_raw_nonsense_is_refused_without_a_word_in_the_terminal(port, what, capfd):
    words, status = RAW[what]
    assert status in say(port, words) + b" "
    assert "Traceback" not in "".join(capfd.readouterr())


def test_who_leaves_while_sending_leaves_no_trace(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as visitor:
        head = b"POST /rooms/connectionism/novikov_bound/run HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
        head += b"Origin: http://127.0.0.1:%d\r\n" + KEY + b"Content-Length: 100\r\n\r\nseed"
        visitor.sendall(head % (port, port))
    time.sleep(0.2)
