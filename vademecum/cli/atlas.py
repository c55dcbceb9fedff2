"""`vade atlas`: the course in the browser."""

from pathlib import Path

from vademecum.errors import UsageError

__all__ = ["atlas"]


def atlas(
    *,
    port: int = 2718,
    host: str = "127.0.0.1",
    allow_host: str = "",
    no_browser: bool = False,
    network: str | None = None,
    input: str | None = None,
    run: Path | None = None,
    export: Path | None = None,
) -> int:
    """Open the course in the browser: every statement with its verdict, live pictures, the errata.

    Args:
        port: The port to listen on; 0 takes a free one.
        host: The address to listen on; any but a local one needs --allow-host.
        allow_host: Names by which browsers may call this server, separated by commas.
        no_browser: Print the address and do not open it.
        network: A network of yours to look at, as FILE.py:OBJECT.
        input: The shape of one example for it, as in 3,32,32.
        run: The folder of a training run, whose curves to follow.
        export: Write the pages as files into this folder, and stop.
    """
    if not 0 <= port < 65536:
        raise UsageError(f"--port must be between 0 and 65535, got {port}")
    if run is not None and not (run / "config.json").is_file():
        raise UsageError(f"--run {run} must be the folder of a run, with its config.json")
    shape = None
    if network is not None or input is not None:  # complains before anything is started
        from vademecum.atlas.network import parse_shape, split_name

        shape = parse_shape(input) if input is not None else None
        split_name(network) if network is not None else None
    try:
        if export is not None:
            from vademecum.atlas.export import export_site

            export_site(export, network=network, shape=shape)
            return 0
        from vademecum.atlas.server import serve

        allow = [name.strip() for name in allow_host.split(",") if name.strip()]
        open_it = not no_browser
        serve(host=host, port=port, allow=allow, browser=open_it, network=network, shape=shape,
              run=run)  # fmt: skip
    except ModuleNotFoundError as error:
        raise UsageError(f"the atlas needs {error.name}: pip install 'vademecum[atlas]'") from None
    return 0
