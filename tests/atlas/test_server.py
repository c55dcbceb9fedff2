"""Starting and stopping `vade atlas`, as one does in a terminal."""

import signal
import socket
import subprocess
import sys

import httpx2
import psutil
import pytest

from bench.atlas import visit
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


def descendants(process) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_and_all_its_processes(number, all_but_one):
    for atlas in serve(state=all_but_one):
        with httpx2.Client(follow_redirects=True, timeout=60) as visitor:
            assert visitor.get(f"{atlas.base}/").status_code == 401
            assert visitor.get(atlas.address).status_code == 200
            address = f"{atlas.base}/pictures/approximation/regions_while_training.svg"
            assert visitor.get(address).status_code == 200
            children = descendants(atlas.process)
            assert len(children) > 2
            with pytest.raises(httpx2.TimeoutException):  # somebody looks at a picture
                visitor.get(f"{address}?depth=4&width=12", timeout=0.01)
            atlas.process.send_signal(number)
            assert atlas.process.wait(60) == 0
        assert not psutil.wait_procs(children, timeout=120)[1]
        assert atlas.process.stdout is not None
        assert atlas.process.stdout.read().splitlines() == [
            "Ctrl-C closes it.", "The atlas has stopped."]  # fmt: skip


@pytest.mark.slow
def test_a_server_that_is_killed_leaves_no_processes(all_but_one):
    for atlas in serve(state=all_but_one):
        httpx2.get(atlas.address, follow_redirects=True, timeout=60)
        children = descendants(atlas.process)
        atlas.process.kill()
        assert not psutil.wait_procs(children, timeout=120)[1]


@pytest.mark.slow
@pytest.mark.xdist_group("browser")
def test_twenty_visitors_who_move_sliders(all_but_one):
    for atlas in serve(state=all_but_one):
        found = visit(atlas.address, 5.0)
        assert not found["errors"]
        assert len(found["seconds"]) >= 20
        atlas.process.terminate()
        assert atlas.process.wait(60) == 0
        assert atlas.process.stdout is not None
        assert "Traceback" not in atlas.process.stdout.read()


@pytest.mark.slow
def test_it_stops_while_it_looks_at_a_network_that_hangs(all_but_one, tmp_path):
    (tmp_path / "slow.py").write_text("import time\ndef net():\n    time.sleep(600)\n")
    for atlas in serve("--network", f"{tmp_path}/slow.py:net", state=all_but_one):
        with httpx2.Client(follow_redirects=True, timeout=60) as visitor:
            visitor.get(atlas.address)
            with pytest.raises(httpx2.TimeoutException):
                visitor.get(f"{atlas.base}/network", timeout=5)
        atlas.process.send_signal(signal.SIGINT)
        assert atlas.process.wait(60) == 0
        assert atlas.process.stdout is not None
        assert "Traceback" not in atlas.process.stdout.read()


@pytest.mark.slow
def test_another_host_must_be_named(all_but_one):
    for atlas in serve("--host", "0.0.0.0", "--allow-host", "atlas.test", state=all_but_one):
        port = atlas.base.rpartition(":")[2]
        for host, status in (("atlas.test", 303), ("127.0.0.1", 303), ("0.0.0.0", 403)):
            path = "/?" + atlas.address.partition("/?")[2]
            headers = {"Host": f"{host}:{port}"}
            answer = httpx2.get(f"http://127.0.0.1:{port}{path}", headers=headers, timeout=30)
            assert answer.status_code == status


def test_the_extra_is_named_where_it_is_missing():
    code = (
        "import sys; sys.modules['jinja2'] = None\n"
        "from vademecum.cli import main; sys.exit(main(['atlas']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "pip install 'vademecum[atlas]'" in done.stderr
