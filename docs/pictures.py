"""The README's pictures: one that the library draws, and the atlas as a browser shows it.

`make pictures` needs chromium for the second kind.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

from vademecum.canvas import save
from vademecum.cli import main as vade
from vademecum.pictures import find_picture

IMAGES = Path(__file__).parent / "images"
SHOTS = (
    ("atlas-room", "rooms/approximation.html", "light"),
    ("atlas-errata", "errata.html", "dark"),
)


def main() -> None:
    figure = find_picture("approximation.regions_while_training")(depth=3)
    save(figure, IMAGES / "regions.svg")
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed: the pictures of the atlas stay as they are")
    with TemporaryDirectory() as site, sync_playwright() as driver:
        vade(["atlas", "--export", site])
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, page, colours in SHOTS:
            tab = browser.new_page(
                color_scheme="dark" if colours == "dark" else "light",
                viewport={"width": 1280, "height": 860},
            )
            tab.goto(f"file://{site}/{page}")
            tab.screenshot(path=IMAGES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
