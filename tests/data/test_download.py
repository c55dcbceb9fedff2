"""Downloads: the right file or none, against a server on this machine."""

import hashlib
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pooch
import pytest

from vademecum.data import DataNotFoundError, sources
from vademecum.data._download import is_intact
from vademecum.data.sources import File, Source

BODY = bytes(range(256)) * 1000
SUM = hashlib.sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves the file whole, cut short, altered, or not at all, by the folder asked for."""

    def do_GET(self):
        way = self.path.split("/")[1]
        self.server.asked.append(way)  # type: ignore[attr-defined]
        self.send_response(404 if way == "absent" else 200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        if way == "cut":
            self.wfile.write(BODY[: len(BODY) // 2])
        elif way == "altered":
            self.wfile.write(BODY[:-1] + b"?")
        else:
            self.wfile.write(BODY)

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv(sources.VARIABLE, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / project)
    return tmp_path / "vademecum" / "toy"


def source(server, *ways: str) -> Source:
    mirrors = tuple(f"http://127.0.0.1:{server.server_port}/{way}/" for way in ways)
    return Source("toy", (File("toy.gz", SUM, "all", "toy"),), {}, mirrors)


def test_download_once(server, cache):
    toy = source(server, "whole")
    assert toy.find() is None
    (path,) = toy.get("train", download=True)
    assert path == cache / "toy.gz"
    assert path.read_bytes() == BODY
    assert toy.find() == [path]
    assert toy.get("test", download=False) == [path]
    assert server.asked == ["whole"]


@pytest.mark.parametrize(
    ("way", "message"),
    [("cut", "toy.gz: .*"), ("altered", "hash of downloaded file"), ("absent", "404")],
)
def test_a_failed_download_leaves_nothing(server, cache, way, message):
    toy = source(server, way)
    with pytest.raises(DataNotFoundError, match=f"(?s)not downloaded.*{message}"):
        toy.get("train", download=True)
    assert not list(cache.rglob("*"))
    assert toy.find() is None


def test_next_mirror(server, cache):
    toy = source(server, "cut", "altered", "absent", "whole")
    (path,) = toy.get("train", download=True)
    assert path.read_bytes() == BODY
    assert server.asked == ["cut", "altered", "absent", "whole"]
    assert list(cache.iterdir()) == [path]


def test_refused_connection(server, cache):
    toy = source(server, "whole")
    server.shutdown()
    server.server_close()
    with pytest.raises(DataNotFoundError, match=r"not downloaded: http://127\.0\.0\.1:.*refused"):
        toy.get("train", download=True)
    assert not list(cache.rglob("*"))


def test_spoilt_cache_counts_as_absent(server, cache):
    toy = source(server, "whole")
    cache.mkdir(parents=True)
    (cache / "toy.gz").write_bytes(BODY[:-1])
    assert toy.find() is None
    with pytest.raises(DataNotFoundError, match="download=False"):
        toy.get("train", download=False)
    (path,) = toy.get("train", download=True)
    assert path.read_bytes() == BODY


def test_without_pooch(server, cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    toy = source(server, "whole")
    with pytest.raises(DataNotFoundError, match=r"(?s)pip install vademecum\[data\].*pooch is not"):
        toy.get("train", download=True)
    assert server.asked == []


def test_cache_that_cannot_be_written(server, cache):
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    with pytest.raises(DataNotFoundError, match="not downloaded"):
        source(server, "whole").get("train", download=True)


def test_progress_bar_on_a_terminal(server, cache, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    source(server, "whole").get("train", download=True)
    shown = capsys.readouterr().err
    assert "toy.gz" in shown
    assert "256.0/256.0 kB" in shown


def test_published_sums_have_their_form():
    for published in (sources.MNIST, sources.FASHION_MNIST, sources.CIFAR10):
        for file in published.files:
            assert len(bytes.fromhex(file.sha256)) == 32
        assert all(mirror.endswith("/") for mirror in published.mirrors)


def test_is_intact(tmp_path):
    path = tmp_path / "file"
    assert not is_intact(path, SUM)
    path.write_bytes(BODY)
    assert is_intact(path, SUM)
    path.write_bytes(BODY + b"\0")
    assert not is_intact(path, SUM)
