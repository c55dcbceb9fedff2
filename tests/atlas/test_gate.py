"""Who gets in: every route of the application, tried by those who should not."""

import re

import pytest
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from vademecum.atlas.application import application
from vademecum.atlas.gate import is_open

TOKEN = "the-secret-of-this-test"
HOST = "127.0.0.1:2718"
OURS = {"host": HOST, "origin": f"http://{HOST}"}


@pytest.fixture
def gate(verdicts):
    return application(verdicts, token=TOKEN, hosts=[HOST], cookie="key")


@pytest.fixture
def client(gate):
    with TestClient(gate, base_url=f"http://{HOST}", follow_redirects=False) as client:
        yield client


def routes(app, prefix="") -> list[tuple[str, str]]:
    """Every method and path of an application, placeholders filled in."""
    found = []
    for route in app.routes:
        path = prefix + re.sub(r"\{[^}]*\}", "x", route.path)
        if isinstance(route, Mount):
            found += routes(route, path.rstrip("/")) or [("GET", f"{path}/x")]
        elif isinstance(route, WebSocketRoute):
            found.append(("WEBSOCKET", path))
        elif isinstance(route, Route):
            found += [(method, path) for method in route.methods or ()]
    return sorted(set(found))


def status(client, method, path, *, headers, cookie=None) -> int:
    """The answer's status; 101 for a websocket that was accepted."""
    if cookie:
        headers = headers | {"cookie": f"key={cookie}"}
    if method != "WEBSOCKET":
        return client.request(method, path, headers=headers).status_code
    try:
        with client.websocket_connect(path, headers=headers):
            return 101
    except WebSocketDenialResponse as denial:
        return denial.status_code
    except WebSocketDisconnect as refusal:
        return 403 if refusal.code == 1008 else 101


STRANGERS = {
    "no token": ({}, None),
    "a wrong token": ({}, "wrong"),
    "half the token": ({}, TOKEN[:10]),
    "a foreign origin": ({"origin": "http://evil.example"}, TOKEN),
    "a null origin": ({"origin": "null"}, TOKEN),
    "our host as another port's origin": ({"origin": "http://127.0.0.1:9"}, TOKEN),
    "a foreign host": ({"host": "evil.example"}, TOKEN),
    "a foreign port": ({"host": "127.0.0.1:9"}, TOKEN),
}


@pytest.mark.parametrize("who", STRANGERS)
def test_strangers_get_no_route_at_all(gate, client, who):
    headers, cookie = STRANGERS[who]
    tried = routes(gate.app)
    assert len(tried) > 120
    assert {"WEBSOCKET", "GET", "POST", "DELETE"} <= {method for method, _ in tried}
    for method, path in tried:
        answer = status(client, method, path, headers=OURS | headers, cookie=cookie)
        assert answer in (401, 403), (method, path, answer)


def test_a_wrong_token_in_the_address(client):
    for path in ("/", "/rooms/connectionism", "/live/connectionism/"):
        assert client.get(f"{path}?token=wrong", headers=OURS).status_code == 401


CLOSED = ("terminal", "api/files", "api/packages", "api/lsp", "api/kernel/run", "api/kernel/save",
          "api/secrets", "api/ai", "api/export", "api/home", "ws_sync", "api/kernel/read_code",
          "api/kernel/execute", "api/kernel/scratchpad", "public/", "auth", "api/sql",
          "api/storage", "api/datasources", "api/document", "api/cache", "sse")  # fmt: skip


def test_notebooks_offer_nothing_but_their_pictures(gate, client):
    tried = [(method, path) for method, path in routes(gate.app) if path.startswith("/live/")]
    for word in CLOSED:
        assert any(f"/live/connectionism/{word}" in path for _, path in tried), word
    opened = {f"{m} {p}" for m, p in tried if is_open(m.replace("HEAD", "GET"), p) and m != "HEAD"}
    live = "/live/connectionism"
    assert opened == {
        f"GET {live}/", f"GET {live}/health", f"GET {live}/@file/x", f"WEBSOCKET {live}/ws",
        f"GET {live}/public-files-sw.js", f"GET {live}/assets/x",
        f"POST {live}/api/kernel/set_ui_element_value",
    }  # fmt: skip
    for method, path in tried:
        if not is_open(method.replace("HEAD", "GET"), path):
            assert status(client, method, path, headers=OURS, cookie=TOKEN) == 403


@pytest.mark.parametrize(
    "path", ["/live/connectionism/../terminal/ws", "/live/x/assets/../../api", "/live", "/live//ws"]
)
def test_no_way_around(path):
    assert not is_open("GET", path)
    assert not is_open("WEBSOCKET", path)


def test_the_first_address_gives_a_cookie_and_forgets_the_token(client):
    answer = client.get(f"/rooms/connectionism?token={TOKEN}&x=1", headers=OURS)
    assert (answer.status_code, answer.headers["location"]) == (303, "/rooms/connectionism?x=1")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/errata", headers=OURS).status_code == 200


def test_a_welcome_never_leads_elsewhere(gate):
    answer = gate._welcome({"path": "//evil.example/", "query_string": f"token={TOKEN}".encode()})
    assert answer.headers["location"] == "/evil.example/"


def test_the_policy_keeps_browsers_here(client):
    client.cookies.set("key", TOKEN)
    for path in ("/", "/live/connectionism/"):
        headers = client.get(path, headers=OURS).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy or "default-src 'self'" in policy
        assert not re.search(r"https?:|\*", policy)
        assert headers["referrer-policy"] == "no-referrer"


def test_requests_that_change_something_must_say_where_they_come_from(client):
    client.cookies.set("key", TOKEN)
    assert client.post("/check", headers={"host": HOST}).status_code == 403
    assert client.get("/check", headers={"host": HOST}).status_code == 200


def test_what_does_not_exist_is_said_in_a_page(client):
    headers = OURS | {"cookie": f"key={TOKEN}"}
    for path, told in (
        ("/rooms/<b>", "There is no room &#39;&lt;b&gt;&#39;."),
        ("/source/os", "There is no module &#39;os&#39;."),
        ("/nowhere", "There is no page /nowhere."),
    ):
        answer = client.get(path, headers=headers)
        assert answer.status_code == 404
        assert told in answer.text
        assert "<nav" in answer.text
    answer = client.post("/rooms/fake_claims/none/run", headers=headers)
    assert (answer.status_code, answer.text) == (404, "There is no such claim.")
