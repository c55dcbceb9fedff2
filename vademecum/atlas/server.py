"""Starting the atlas: one address, until Ctrl-C.

The process that worker processes are forked from imports the rooms at the same time as this one
does, so nothing above the imports of `serve` may need torch.
"""

import contextlib
import gc
import os
import secrets
import signal
import socket
import threading
import webbrowser
from collections.abc import Sequence
from concurrent.futures import CancelledError
from multiprocessing import forkserver, get_all_start_methods
from pathlib import Path
from typing import TYPE_CHECKING

from vademecum.errors import UsageError

if TYPE_CHECKING:
    from vademecum.atlas.network import Dossier
    from vademecum.claims import Workers

__all__ = ["Looking", "prepare", "serve"]

_LOCAL = ("127.0.0.1", "localhost")
_LOOKING_SECONDS = 120.0


def prepare() -> None:
    """Start the process from which worker processes are forked, with all imports done."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # each has work of its own, and none can fork
    if "forkserver" in get_all_start_methods():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which it inherits
        forkserver.set_forkserver_preload(["vademecum.cli", "vademecum.atlas._preload"])
        forkserver.ensure_running()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 2718,
    allow: Sequence[str] = (),
    browser: bool = True,
    network: str | None = None,
    shape: tuple[int, ...] | None = None,
    run: Path | None = None,
) -> None:
    """Serve the atlas until it is interrupted, and print the one address to open.

    Args:
        host: The address to bind; any but a local one needs `allow`.
        port: The port; 0 takes one that is free.
        allow: Further names by which browsers may call this server.
        browser: Whether to open the address.
        network: The user's network, as FILE.py:OBJECT.
        shape: The shape of one of its examples.
        run: The folder of a training run to follow.

    Raises:
        UsageError: If the address cannot be bound, or the host is not local and nothing is allowed.
    """
    if host not in _LOCAL and not allow:
        raise UsageError(
            f"--host {host} lets other machines in: name the hosts that they may call with"
            " --allow-host, as in --allow-host atlas.example.org"
        )
    with _bind(host, port) as bound:
        port = bound.getsockname()[1]
        names = [*_LOCAL, *allow]
        hosts = [f"{name}:{port}" for name in names] + (names if port == 80 else [])
        token = secrets.token_urlsafe(24)
        site = f"http://{allow[0] if host not in _LOCAL else host}:{port}"
        address = f"{site}/{'run' if run else ''}?token={token}"
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does
        prepare()
        gc.disable()  # until all is imported
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again at the end
            look = Looking(network, shape)
            _run(bound, address, hosts, token, look, run, browser=browser)
    print("The atlas has stopped.")


def _run(
    bound: socket.socket,
    address: str,
    hosts: list[str],
    token: str,
    look: "Looking",
    run: Path | None,
    *,
    browser: bool,
) -> None:
    import uvicorn

    from vademecum.atlas.application import application
    from vademecum.atlas.drawings import Drawings
    from vademecum.atlas.verdicts import Verdicts
    from vademecum.claims import select

    verdicts, drawings = Verdicts(select(), nice=10), Drawings()
    cookie = f"vademecum-{bound.getsockname()[1]}"
    app = application(
        verdicts, drawings, token=token, hosts=hosts, cookie=cookie, look=look, run=run
    )

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            for work in (drawings, verdicts, look):  # or visitors who wait would hold it up
                work.close()
            await super().shutdown(sockets)

    gc.freeze()  # or each collection would go through all of torch, and hold a page up
    gc.enable()
    drawings.warm()
    if missing := verdicts.missing():
        verdicts.start(missing)
    settings = uvicorn.Config(
        app,
        http="h11",  # limits the length of headers, and knows what a Host is
        log_level="error",
        server_header=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
        ws="none",
    )
    if address.partition("//")[2].partition(":")[0] not in _LOCAL:
        print("Warning: other machines can reach this server, without encryption.")
    print(f"The atlas is open at {address}\nCtrl-C closes it.", flush=True)
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    Server(settings).run(sockets=[bound])


def _bind(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen()  # from now on visitors wait, where they would be refused
    except OSError as error:
        made.close()
        raise UsageError(
            f"cannot listen on {host}:{port} ({error.strerror}); --port 0 takes a free port"
        ) from None
    return made


class Looking:
    """Looks at the user's network again each time, in a process that may die of it.

    Args:
        network: FILE.py:OBJECT, if there is one.
        shape: The shape of one of its examples.
    """

    def __init__(self, network: str | None, shape: tuple[int, ...] | None):
        self._network, self._shape = network, shape
        self._crews: set[Workers] = set()

    def __call__(self) -> "Dossier | None":
        """What there is to see."""
        from vademecum.atlas.network import Dossier, dossier
        from vademecum.claims import Workers

        if self._network is None:
            return None
        crew = Workers(1, limit=_LOOKING_SECONDS, forked=True)
        self._crews.add(crew)
        try:
            return crew.submit(dossier, self._network, self._shape).result()
        except (TimeoutError, ChildProcessError, CancelledError) as error:
            return Dossier(self._network, error=f"{type(error).__name__}: {error}")
        finally:
            self._crews.discard(crew)
            crew.shutdown(cancel_futures=True)

    def close(self) -> None:
        """Kill what is under way."""
        for crew in tuple(self._crews):
            crew.shutdown(cancel_futures=True)
