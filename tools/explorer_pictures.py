"""Draw docs/pictures/explorer*.png again: the real page, as `viewslots explore` serves it, in Chromium.

python tools/explorer_pictures.py
"""

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from other_pictures import SEED, drawing
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

OUT = Path(__file__).parent.parent / "docs" / "pictures"
SCENE = "26"
DESKTOP, TELEPHONE = (1280, 1180), (390, 844)
FLAGS = ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync"]
expect.set_options(timeout=120_000)


@contextmanager
def served() -> Iterator[str]:
    words = [sys.executable, "-m", "viewslots", "explore", "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads("".join(process.stdout.readline() for _ in range(3)))["address"]
    finally:
        process.terminate()
        process.wait()


def opened(browser: Browser, address: str, size: tuple[int, int], dark: bool = False) -> Page:
    """A tab of its own that shows SCENE."""
    width, height = size
    page = browser.new_page(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    page.goto(address)
    expect(page.locator("#stand label").first).to_be_visible()
    page.get_by_label("Scene number").fill(SCENE)
    page.get_by_role("button", name="Show this scene").click()
    expect(page.get_by_text(f"Scene {SCENE}", exact=True)).to_be_visible()
    return page


def look_as(page: Page, way: str) -> None:
    picture = page.locator("#picture img")
    before = picture.get_attribute("src") or ""
    page.get_by_label(way, exact=True).check()
    expect(picture).not_to_have_attribute("src", before)


def save(page: Page, name: str) -> None:
    page.wait_for_timeout(1500)  # what fades has faded
    page.screenshot(path=OUT / f"{name}.png", animations="disabled")


def draw(browser: Browser, address: str) -> None:
    for name, size, dark, way in (
        ("explorer", DESKTOP, False, "X-ray"),
        ("explorer-dark", DESKTOP, True, "Picture"),
        ("explorer-narrow", TELEPHONE, False, "Objects in colour"),
    ):
        page = opened(browser, address, size, dark)
        if way != "Picture":  # as it opens
            look_as(page, way)
        save(page, name)
        page.close()
    page = opened(browser, address, (DESKTOP[0], 900))
    encoded = io.BytesIO()
    Image.fromarray(drawing(np.random.default_rng(SEED))).resize((256, 256)).save(encoded, "PNG")
    page.get_by_role("button", name="Or use your own pictures").click()
    page.locator("#files input[type=file]").set_input_files(
        {"name": "drawing.png", "mimeType": "image/png", "buffer": encoded.getvalue()}
    )
    expect(page.get_by_text("Do not trust this answer.")).to_be_visible()
    save(page, "explorer-unfamiliar")


if __name__ == "__main__":
    with sync_playwright() as playwright, served() as address:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        draw(chromium, address)
        chromium.close()
