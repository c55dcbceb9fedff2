"""Starting the atlas: one process on one address, until Ctrl-C."""

import gc
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence

import torch
import uvicorn

from vademecum.atlas.application import application
from vademecum.atlas.network import Dossier, dossier
from vademecum.atlas.verdicts import Verdicts
from vademecum.claims import Workers, select
from vademecum.errors import UsageError

__all__ = ["looking", "serve"]

_LOCAL = ("127.0.0.1", "localhost")
_LOOKING_SECONDS = 120.0


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 2718,
    allow: Sequence[str] = (),
    browser: bool = True,
    network: str | None = None,
    shape: tuple[int, ...] | None = None,
) -> None:
    """Serve the atlas until it is interrupted, and print the one address to open.

    Args:
        host: The address to bind; any but a local one needs `allow`.
        port: The port; 0 takes one that is free.
        allow: Further names by which browsers may call this server.
        browser: Whether to open the address.
        network: The user's network, as FILE.py:OBJECT.
        shape: The shape of one of its examples.

    Raises:
        UsageError: If the address cannot be bound, or the host is not local and nothing is allowed.
    """
    if host not in _LOCAL and not allow:
        raise UsageError(
            f"--host {host} lets other machines in: name the hosts that they may call with"
            " --allow-host, as in --allow-host atlas.example.org"
        )
    bound = _bind(host, port)
    port = bound.getsockname()[1]
    names = [*_LOCAL, *allow]
    hosts = [f"{name}:{port}" for name in names] + (names if port == 80 else [])
    token = secrets.token_urlsafe(24)
    torch.set_num_threads(1)  # pictures are small, and many may be drawn at once
    verdicts = Verdicts(select())
    look = looking(network, shape)
    app = application(verdicts, token=token, hosts=hosts, cookie=f"vademecum-{port}", look=look)
    gc.freeze()  # or each collection would go through all of torch, and hold a picture up
    if missing := verdicts.missing():
        verdicts.start(missing)
    address = f"http://{allow[0] if host not in _LOCAL else host}:{port}/?token={token}"
    settings = uvicorn.Config(
        app,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
    )
    _announce(address, warn=host not in _LOCAL)
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    try:
        uvicorn.Server(settings).run(sockets=[bound])
    except KeyboardInterrupt:  # which uvicorn raises again once all is closed
        pass
    finally:
        bound.close()
    print("The atlas has stopped.")


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


def _announce(address: str, *, warn: bool) -> None:
    if warn:
        print("Warning: other machines can reach this server, without encryption.")
    print(f"The atlas is open at {address}\nCtrl-C closes it.", flush=True)


def looking(network: str | None, shape: tuple[int, ...] | None) -> Callable[[], Dossier | None]:
    """A function that looks at the network again each time, in a process that may die of it."""
    if network is None:
        return lambda: None

    def look() -> Dossier:
        workers = Workers(1, limit=_LOOKING_SECONDS)
        try:
            return workers.submit(dossier, network, shape).result()
        except (TimeoutError, ChildProcessError) as error:
            return Dossier(network, error=f"{type(error).__name__}: {error}")
        finally:
            workers.shutdown(cancel_futures=True)

    return look
