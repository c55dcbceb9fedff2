"""The formula sheet in the atlas: for download, with what is known of the claims."""

import pytest
from starlette.testclient import TestClient

from vademecum.atlas import application as module
from vademecum.atlas.application import application
from vademecum.atlas.links import Links
from vademecum.atlas.pages import Pages
from vademecum.atlas.verdicts import Verdicts
from vademecum.claims import Report, equals, remember, select
from vademecum.sheet import PrinterMissing

TOKEN, HOST = "the-secret-of-this-test", "127.0.0.1:2718"
OURS = {"host": HOST, "cookie": f"key={TOKEN}"}


@pytest.fixture
def client(verdicts, drawings):
    gate = application(verdicts, drawings, token=TOKEN, hosts=[HOST], cookie="key")
    with TestClient(gate, base_url=f"http://{HOST}", headers=OURS) as client:
        yield client


def test_both_kinds_of_files(client, monkeypatch):
    monkeypatch.setattr(module, "print_pdf", lambda page: b"%PDF " + page[:15].encode())
    page = client.get("/sheet-cheat.html")
    assert page.status_code == 200
    assert page.headers["content-disposition"] == 'attachment; filename="sheet-cheat.html"'
    assert "<h2>connectionism</h2>" in page.text
    pdf = client.get("/sheet-full.pdf")
    assert pdf.headers["content-type"] == "application/pdf"
    assert pdf.content == b"%PDF <!doctype html>"
    for path in ("/sheet-long.pdf", "/sheet-cheat.doc", "/sheet-.pdf"):
        assert client.get(path).status_code == 404
    course = client.get("/course").text
    for path in ("/sheet-cheat.pdf", "/sheet-full.pdf", "/sheet-cheat.html", "/sheet-full.html"):
        assert f'href="{path}" download' in course


def test_without_a_browser_the_html_is_named(client, monkeypatch):
    def fail(page):
        raise PrinterMissing("no Chromium is installed")

    monkeypatch.setattr(module, "print_pdf", fail)
    answer = client.get("/sheet-cheat.pdf")
    assert answer.status_code == 503
    assert "no Chromium is installed: take the HTML and print it." in answer.text


def test_marks_come_from_what_is_known():
    claims = select("connectionism.novikov*")
    pages = Pages(Verdicts(claims), Links("", ".html"), None)
    assert 'aria-label="not checked"' in pages.sheet("cheat")
    remember(claims, [Report(claim.id, 0, (equals("one", 1, 1),)) for claim in claims])
    pages = Pages(Verdicts(claims), Links("", ".html"), None)
    page = pages.sheet("cheat")
    assert 'aria-label="not checked"' not in page
    assert '<meta name="date" content="20' in page
    assert 'href="sheet-full.html">HTML' in pages.course()
    assert ".pdf" not in pages.course()
