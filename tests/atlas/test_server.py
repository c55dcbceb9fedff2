"""Starting and stopping `vade atlas`, as one does in a terminal."""

import signal
import socket
import subprocess
import sys

import httpx2
import pytest

from tests.atlas.conftest import serve
from vademecum.cli import main


def test_a_port_in_use(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["atlas", "--no-browser", "--port", str(port)]) == 2
    told = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use)" in told
    assert "--port 0" in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0 lets other machines in"),
        (["--port", "70000"], "--port must be between 0 and 65535, got 70000"),
        (["--network", "nothing.py:net"], "there is no file nothing.py"),
        (["--network", "net"], "--network must be FILE.py:OBJECT, got 'net'"),
        (["--input", "3x3"], "--input must be the shape of one example"),
    ],
)
def test_bad_usage(capsys, options, message):
    assert main(["atlas", "--no-browser", *options]) == 2
    assert message in capsys.readouterr().err


def test_export_spares_other_folders(capsys, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    assert main(["atlas", "--export", str(tmp_path)]) == 2
    assert "must be a new folder or an earlier export" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if path.name != "state"] == ["thesis.tex"]


@pytest.mark.slow
def test_ctrl_c_stops_it(tmp_path):
    for atlas in serve():
        with httpx2.Client(follow_redirects=True, timeout=30) as visitor:
            assert visitor.get(f"{atlas.base}/").status_code == 401
            assert visitor.get(atlas.address).status_code == 200
        atlas.process.send_signal(signal.SIGINT)
        assert atlas.process.wait(60) == 0
        assert atlas.process.stdout is not None
        rest = atlas.process.stdout.read()
        assert "Ctrl-C closes it." in rest
        assert "The atlas has stopped." in rest
        assert "Traceback" not in rest


@pytest.mark.slow
def test_another_host_must_be_named(tmp_path):
    for atlas in serve("--host", "0.0.0.0", "--allow-host", "atlas.test"):
        port = atlas.base.rpartition(":")[2]
        for host, status in (("atlas.test", 303), ("127.0.0.1", 303), ("0.0.0.0", 403)):
            path = "/?" + atlas.address.partition("/?")[2]
            headers = {"Host": f"{host}:{port}"}
            answer = httpx2.get(f"http://127.0.0.1:{port}{path}", headers=headers, timeout=30)
            assert answer.status_code == status


def test_the_extra_is_named_where_it_is_missing():
    code = (
        "import sys; sys.modules['marimo'] = None\n"
        "from vademecum.cli import main; sys.exit(main(['atlas']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "pip install 'vademecum[atlas]'" in done.stderr
