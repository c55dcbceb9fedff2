"""`python -m vademecum` is `vade`."""

from vademecum.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
