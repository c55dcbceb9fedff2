"""Printing by an installed Chromium: tagged, with bookmarks, the same bytes each time.

Margin boxes, in which page numbers and the legend stand, are honoured since version 131 and ignored
without a word before, hence older ones are refused.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from vademecum.sheet._pdf import tidied

__all__ = ["PrinterMissing", "print_pdf"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OLDEST = 131
_FLAGS = (
    *("--headless", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-extensions", "--no-pdf-header-footer"),
    *("--generate-pdf-document-outline", "--export-tagged-pdf", "--lang=en"),
)
_DATE = re.compile(r'<meta name="date" content="([^"]*)">')
_PATIENCE = 300.0  # seconds


class PrinterMissing(RuntimeError):
    """There is no Chromium that could print, or it failed; the message says what to do."""


def print_pdf(page: str) -> bytes:
    """A page as PDF, which bears the date that the page names, or the first of all days.

    Args:
        page: The HTML of a sheet.

    Raises:
        PrinterMissing: If no Chromium is installed, if it is too old, or if it fails.
    """
    program = _found()
    with TemporaryDirectory(prefix="vademecum-") as folder:
        source, target = Path(folder, "sheet.html"), Path(folder, "sheet.pdf")
        source.write_text(page, encoding="utf-8")
        command = [program, *_FLAGS, f"--user-data-dir={folder}/profile"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:  # its sandbox refuses to serve root
            command.append("--no-sandbox")
        command += [f"--print-to-pdf={target}", source.as_uri()]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_PATIENCE, check=False
            )
        except subprocess.TimeoutExpired:
            raise PrinterMissing(f"{program} took more than {_PATIENCE:g} s to print") from None
        if not target.exists():
            said = (done.stderr.strip().splitlines() or ["no word"])[-1]
            raise PrinterMissing(f"{program} did not print: {said}")
        date = _DATE.search(page)
        return tidied(target.read_bytes(), date=date[1] if date else "")


def _found() -> str:
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        raise PrinterMissing(f"no Chromium is installed (looked for {', '.join(_NAMES)})")
    said = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    version = re.search(r"(\d+)\.\d+", said)
    if version is None or int(version[1]) < _OLDEST:
        raise PrinterMissing(
            f"{program} must be Chromium {_OLDEST} or newer, which prints page numbers, got"
            f" {said.strip() or 'no version'}"
        )
    return program
