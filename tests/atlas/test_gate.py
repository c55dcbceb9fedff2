"""How one gets in, and what every answer says."""

import re

import pytest
from starlette.testclient import TestClient

from tests.atlas.test_attacks import HOST, OURS, TOKEN
from vademecum.atlas.application import application

STRANGER = {"host": HOST}


@pytest.fixture
def client(verdicts, drawings):
    gate = application(verdicts, drawings, token=TOKEN, hosts=[HOST], cookie="key")
    with TestClient(gate, base_url=f"http://{HOST}", follow_redirects=False) as client:
        yield client


def test_the_first_address_gives_a_cookie_and_forgets_the_token(client):
    answer = client.get(f"/rooms/connectionism?token={TOKEN}&x=1", headers=STRANGER)
    assert (answer.status_code, answer.headers["location"]) == (303, "/rooms/connectionism?x=1")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert client.get("/check", headers=STRANGER).status_code == 200


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example/", "///evil.example/"])
def test_a_welcome_never_leads_elsewhere(client, path):
    answer = client.app._welcome(path, {"token": TOKEN})
    assert answer.headers["location"] == "/evil.example/"


def test_the_policy_keeps_browsers_here(client):
    for path, headers in (("/check", OURS), ("/none", OURS), ("/", STRANGER)):
        answer = client.get(path, headers=headers).headers
        policy = answer["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert not re.search(r"https?:|\*|unsafe|blob", policy)
        assert answer["referrer-policy"] == "no-referrer"
