"""The real page in a real browser: every control once, good and bad uploads, downloads, two users, many fast clicks."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, BrowserType, Page, expect

from viewslots.explorer.controls import asset

FLAGS = ["--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
PATIENCE = 30_000
"""Milliseconds; only for machines under load. Nothing here measures time."""
expect.set_options(timeout=PATIENCE)


def no_browser() -> NoReturn:
    line = "no Chromium to test the page with; `make browser` installs one"
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        pytest.fail(line)
    pytest.skip(line)


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type: BrowserType, browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """The system's Chromium, or Playwright's own where that is installed."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and not Path(browser_type.executable_path).exists():
        no_browser()
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    path = {} if found is None else {"executable_path": found}
    return {**browser_type_launch_args, **path, "args": [*FLAGS, "--disable-sync", *root]}


@dataclass(frozen=True)
class Served:
    address: str
    temporary: Path
    """Where the server puts its temporary folder."""

    def files(self) -> list[Path]:
        return [path for path in self.temporary.rglob("*") if path.is_file()]


@contextmanager
def serving(*words: str, model: str = "compact", end: signal.Signals = signal.SIGTERM) -> Iterator[Served]:
    """`viewslots explore` of a fast model, in a process of its own. It leaves nothing on the disk."""
    with tempfile.TemporaryDirectory() as name:
        process = subprocess.Popen(
            [sys.executable, "-m", "viewslots", "explore", model, "--port", "0", "--device", "cpu", *words],
            env={**os.environ, "TMPDIR": name},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        told = "".join(process.stdout.readline() for _ in range(3))
        try:
            assert told, process.communicate()[1]
            yield Served(json.loads(told)["address"], Path(name))
        finally:
            process.send_signal(end)
            errors = process.communicate(timeout=60)[1]
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
        assert not [path for path in Path(name).rglob("*") if path.is_file()]
        assert not list(Path(name).glob("viewslots*"))


@pytest.fixture(scope="module")
def served(browser: Browser) -> Iterator[Served]:
    with serving() as server:
        yield server


@pytest.fixture
def explorer(page: Page, served: Served) -> Iterator[Page]:
    """A fresh tab with its first scene. Whatever it asks for, it asks here."""
    page.set_default_timeout(PATIENCE)
    page.on("request", lambda request: outside.append(request.url) if foreign(request.url, served) else None)
    outside: list[str] = []
    opened_at(page, served)
    yield page
    assert outside == []


def foreign(url: str, served: Served) -> bool:
    return not url.startswith((served.address, "data:", "blob:"))


def opened_at(page: Page, served: Served) -> None:
    page.goto(served.address)
    expect(page.locator("#picture img")).to_be_visible()
    expect(page.locator("#stand label").first).to_be_visible()


def shown(page: Page) -> str:
    """The large picture as it is in the page."""
    return page.locator("#picture img").get_attribute("src") or ""


def alt(page: Page) -> str:
    return page.locator("#picture img").get_attribute("alt") or ""


def changed(page: Page, before: str) -> str:
    """Waits until the large picture is another one."""
    expect(page.locator("#picture img")).not_to_have_attribute("src", before)
    return shown(page)


def number(page: Page, name: str) -> float:
    return float(page.locator(f"#{name} input[type=number]").input_value())


def slide(page: Page, name: str, presses: int = 4, key: str = "ArrowRight") -> None:
    page.locator(f"#{name} input[type=range]").focus()
    for _ in range(presses):
        page.keyboard.press(key)


def choose(page: Page, name: str, option: str) -> None:
    expect(page.get_by_role("option")).to_have_count(0)  # the list before this one fades out
    page.locator(f"#{name} input").click()
    page.get_by_role("option", name=option, exact=True).click()


def png(color: tuple[int, int, int], side: int = 80) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (side, side), color).save(file, "PNG")
    return file.getvalue()


def upload(page: Page, *files: tuple[str, bytes]) -> None:
    if not page.locator("#files").is_visible():
        page.get_by_role("button", name="Or use your own pictures").click()
    given = [{"name": name, "mimeType": "image/png", "buffer": content} for name, content in files]
    page.locator("#files input[type=file]").set_input_files(given)


def note(page: Page, text: str) -> None:
    """A note of what did not work comes up, and is closed again."""
    toast = page.get_by_test_id("toast-body").filter(has_text=text)
    expect(toast).to_be_visible()
    toast.get_by_test_id("toast-close").click()


def test_the_first_scene_is_there_with_its_truth(explorer: Page) -> None:
    expect(explorer.locator("#count")).to_contain_text("It counts")
    assert explorer.locator("#scores tr").count() == 8
    assert explorer.locator("#given .vs-pair").count() == 4
    assert explorer.locator("#stand label").count() == 4
    objects = explorer.locator("#switches label").count() - 1
    assert explorer.locator("#layers [data-object]").count() == objects > 0
    assert explorer.locator("#objects tbody tr").count() == objects
    expect(explorer.locator("#pairs")).to_contain_text("overlap")
    assert explorer.locator("#pad .vs-mark").count() == 4
    assert "viewslots" in explorer.locator("h1").inner_text()
    assert not explorer.locator("#notice").is_visible()


def test_ways_to_look_and_switches(explorer: Page) -> None:
    pictures = [shown(explorer)]
    for mode in ("X-ray", "Objects in colour", "Near and far", "Picture"):
        explorer.locator("#mode").get_by_label(mode).check()
        pictures.append(changed(explorer, pictures[-1]))
    assert pictures[-1] == pictures[0]
    assert len(set(pictures)) == 4
    explorer.locator("#switches label").first.click()
    without = changed(explorer, pictures[0])
    expect(explorer.locator("#layers .vs-off")).to_have_count(1)
    explorer.locator("#switches").get_by_label("background").uncheck()
    changed(explorer, without)
    assert "without background" in alt(explorer)


def test_the_camera_by_sliders_pad_and_pictures(explorer: Page) -> None:
    start, place = shown(explorer), number(explorer, "direction-1")
    slide(explorer, "direction-1", presses=1, key="End")
    moved = changed(explorer, start)
    pad = explorer.locator("#pad .vs-pad")
    expect(pad).not_to_have_attribute("data-x", str(place))
    assert explorer.locator("#stand input:checked").count() == 0
    for name in ("direction-2", "direction-3", "direction-4"):
        slide(explorer, name, presses=1, key="End")
        moved = changed(explorer, moved)
    pad.click(position={"x": 30, "y": 40})
    moved = changed(explorer, moved)
    expect(explorer.locator("#direction-1 input[type=number]")).to_have_value(pad.get_attribute("data-x") or "")
    pad.focus()
    explorer.keyboard.press("Shift+ArrowRight")
    moved = changed(explorer, moved)
    assert pad.evaluate("pad => pad === document.activeElement")
    explorer.locator("#stand label").first.click()
    changed(explorer, moved)
    expect(explorer.locator("#picture img")).to_have_attribute("src", start)
    assert number(explorer, "direction-1") == pytest.approx(place, abs=0.001)


def test_a_late_answer_does_not_move_the_pad_back(explorer: Page) -> None:
    """The slider is asked about first, and answered when the pad has already been moved."""
    start, pad = shown(explorer), explorer.locator("#pad .vs-pad")
    with explorer.expect_request("**/queue/join*"):
        slide(explorer, "direction-2", presses=1, key="End")
    explorer.evaluate(
        """() => { const pad = document.querySelector('#pad .vs-pad'), box = pad.getBoundingClientRect();
        for (const kind of ['pointerdown', 'pointerup']) pad.dispatchEvent(new PointerEvent(kind,
            { bubbles: true, clientX: box.left + box.width / 4, clientY: box.top + box.height / 2 })); }"""
    )
    changed(explorer, start)
    expect(explorer.locator("#direction-1 input[type=number]")).to_have_value("-1.5")
    expect(pad).to_have_attribute("data-x", "-1.5")


def test_a_scene_that_begins_afresh_moves_the_pad(page: Page) -> None:
    """Though a move of it was never answered: the server had forgotten the page. A late answer still does not."""
    page.set_content('<div id="root"><div class="vs-pad"><svg class="vs-known"><polygon/></svg>')
    page.evaluate(f"""() => {{
        document.querySelector('.vs-pad').innerHTML += '<div class="vs-marks"></div><div class="vs-dot"></div>';
        const element = document.querySelector('#root'), trigger = () => {{}};
        const props = window.props = {{ value: [0, 0] }}, watch = (name, changed) => window.changed = changed;
        {asset("pad.js").replace("REACH", "3")} }}""")
    page.locator(".vs-pad").dispatch_event("keydown", {"key": "ArrowRight", "bubbles": True})
    for answer, shown_at in (([1, 2, 0, True, [], []], "0.15"), ([1, 2, None, True, [], []], "1")):
        page.evaluate("value => { window.props.value = value; window.changed(); }", answer)
        assert page.locator(".vs-pad").get_attribute("data-x") == shown_at


def test_dragging_the_pad(explorer: Page) -> None:
    start = shown(explorer)
    explorer.locator("#pad .vs-pad").scroll_into_view_if_needed()
    box = explorer.locator("#pad .vs-pad").bounding_box()
    assert box is not None
    explorer.mouse.move(box["x"] + 20, box["y"] + 20)
    explorer.mouse.down()
    explorer.mouse.move(box["x"] + box["width"] - 20, box["y"] + 20, steps=15)
    explorer.mouse.up()
    changed(explorer, start)
    expected = explorer.locator("#pad .vs-pad").get_attribute("data-x") or ""
    assert float(expected) > 2
    expect(explorer.locator("#direction-1 input[type=number]")).to_have_value(expected)


def test_walking_between_two_pictures(explorer: Page) -> None:
    start = shown(explorer)
    slide(explorer, "share", presses=1, key="End")
    arrived = changed(explorer, start)
    explorer.locator("#stand label").nth(1).click()
    expect(explorer.locator("#stand input").nth(1)).to_be_checked()
    expect(explorer.locator("#picture img")).to_have_attribute("src", arrived)
    choose(explorer, "to", "picture 3")
    other = changed(explorer, arrived)
    choose(explorer, "from", "picture 2")
    slide(explorer, "share", presses=1, key="Home")
    changed(explorer, other)
    expect(explorer.locator("#picture img")).to_have_attribute("src", arrived)


def test_other_scenes_by_number_and_by_chance(explorer: Page) -> None:
    slide(explorer, "pictures", presses=2, key="ArrowLeft")
    explorer.locator("#number input").fill("4")
    explorer.locator("#open").click()
    expect(explorer.locator("#picture figcaption")).to_contain_text("Scene 4")
    expect(explorer.locator("#given .vs-pair")).to_have_count(2)
    expect(explorer.locator("#stand label")).to_have_count(2)
    explorer.locator("#surprise").click()
    expect(explorer.locator("#picture figcaption b")).not_to_have_text("Scene 4")
    expect(explorer.locator("#picture figcaption b")).to_have_text(f"Scene {int(number(explorer, 'number'))}")


def test_numbers_that_no_scene_has(explorer: Page) -> None:
    start = shown(explorer)
    for text, hint in (("-5", "not -5"), ("1.5", "1.5 is no whole number"), ("", "whole number")):
        explorer.locator("#number input").fill(text)
        explorer.locator("#open").click()
        note(explorer, hint)
        explorer.wait_for_timeout(600)  # not too many in a row
    assert shown(explorer) == start


def test_moving_an_object(explorer: Page) -> None:
    pictures = [shown(explorer)]
    for way in ("right", "up"):
        explorer.locator(f"#move-{way}").click()
        pictures.append(changed(explorer, pictures[-1]))
    expect(explorer.locator("#picture figcaption")).to_contain_text("object 1 moved")
    for before in (pictures[1], pictures[0]):
        explorer.locator("#take-back").click()
        expect(explorer.locator("#picture img")).to_have_attribute("src", before)


def test_the_picture_is_in_sight_beside_every_slider(explorer: Page) -> None:
    explorer.set_viewport_size({"width": 1280, "height": 800})
    sliders = explorer.locator("input[type=range]")
    for place in range(sliders.count()):
        sliders.nth(place).evaluate("slider => slider.scrollIntoView({ block: 'center' })")
        box = explorer.locator("#picture img").bounding_box()
        assert box is not None
        assert -1 <= box["y"] <= 800 - box["height"]


def test_beyond_the_line_the_model_says_that_it_guesses(explorer: Page) -> None:
    assert explorer.locator("#pad polygon").get_attribute("points")
    assert "guesses" not in explorer.locator("#picture figcaption").inner_text()
    for name in ("direction-1", "direction-2", "direction-3"):
        before = shown(explorer)
        slide(explorer, name, presses=1, key="End")
        changed(explorer, before)
    expect(explorer.locator("#picture figcaption")).to_contain_text("here the model guesses")


def test_mixing_two_scenes(explorer: Page) -> None:
    explorer.get_by_role("button", name="Mix two scenes").click()
    explorer.locator("#add").click()
    note(explorer, "open a second scene first")
    explorer.locator("#other input").fill("4")
    explorer.locator("#open-other").click()
    expect(explorer.locator("#second")).to_contain_text("Scene 4")
    mine = explorer.locator("#layers [data-object]").count()
    expect(explorer.locator("#theirs input")).to_have_value(f"object {mine + 1}")
    pictures, switches = [shown(explorer)], explorer.locator("#switches label").count()
    for button, count in (("add", switches + 1), ("exchange", switches + 1), ("ground", switches + 1)):
        explorer.locator(f"#{button}").click()
        pictures.append(changed(explorer, pictures[-1]))
        expect(explorer.locator("#switches label")).to_have_count(count)
    expect(explorer.locator("#facts")).to_contain_text("before your changes")
    for before in (pictures[2], pictures[1], pictures[0]):
        explorer.locator("#undo").click()
        expect(explorer.locator("#picture img")).to_have_attribute("src", before)
    explorer.locator("#undo").click()
    note(explorer, "nothing has been changed")


def test_own_pictures(explorer: Page, served: Served) -> None:
    upload(explorer, ("../../../etc/passwd.png", png((200, 30, 30))), ("<b>x</b>.png", png((30, 30, 200))))
    expect(explorer.locator("#picture figcaption b")).to_have_text("Your pictures")
    expect(explorer.locator("#given .vs-pair")).to_have_count(2)
    expect(explorer.locator("#count")).to_contain_text("Nobody knows the truth")
    assert explorer.locator("#scores").count() == 0
    given = explorer.locator("#given img").first.get_attribute("src")
    assert np.asarray(Image.open(urllib.request.urlopen(given)))[0, 0].tolist() == [200, 30, 30]
    warning = explorer.locator("#notice [role=alert]")
    expect(warning).to_contain_text("Do not trust this answer")
    box = warning.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 720  # without scrolling
    assert "%" not in explorer.locator("#facts").inner_text()
    explorer.locator("#open").click()
    expect(warning).to_have_count(0)
    assert "passwd" not in explorer.content()
    assert served.files() == []


def test_bad_uploads_change_nothing(explorer: Page, served: Served) -> None:
    start = shown(explorer)
    cases = [
        ([("a.png", png((1, 2, 3))), ("b.png", b"no picture at all")], "picture 2: not a picture"),
        ([("cut.png", png((9, 9, 9), 300)[:200])], "picture 1: damaged or cut off"),
        ([(f"{k}.png", png((k, k, k))) for k in range(9)], "8 at most"),
    ]
    for files, text in cases:
        upload(explorer, *files)
        note(explorer, text)
        expect(explorer.locator("#files input[type=file]")).to_be_attached()
    assert shown(explorer) == start
    assert served.files() == []


def test_what_is_shown_can_be_saved(explorer: Page) -> None:
    explorer.locator("#mode").get_by_label("X-ray").check()
    expect(explorer.locator("#picture img")).to_have_attribute("alt", re.compile("^X-ray"))
    with explorer.expect_download() as saved:
        explorer.locator("#save-picture").click()
    assert saved.value.suggested_filename == "viewslots-scene-26.svg"
    content = Path(saved.value.path()).read_bytes()
    assert content == urllib.request.urlopen(shown(explorer)).read()
    with explorer.expect_download() as saved:
        explorer.locator("#save-numbers").click()
    told = json.loads(Path(saved.value.path()).read_text())
    assert told["scene"] == "Scene 26"
    assert len(told["unedited"]["scores"]) == 8


def test_two_users_may_send_the_same_picture(explorer: Page, browser: Browser, served: Served) -> None:
    context = browser.new_context()
    guest = context.new_page()
    opened_at(guest, served)
    for page in (explorer, guest):
        page.get_by_role("button", name="Or use your own pictures").click()
    for page in (explorer, guest):
        upload(page, ("same.png", png((10, 220, 10))))
    for page in (explorer, guest):
        expect(page.locator("#picture figcaption b")).to_have_text("Your pictures")
    assert served.files() == []
    context.close()


def test_two_users_do_not_meet(explorer: Page, browser: Browser, served: Served) -> None:
    context = browser.new_context()
    guest = context.new_page()
    opened_at(guest, served)
    first = shown(guest)
    upload(explorer, ("mine.png", png((10, 220, 10))))
    expect(explorer.locator("#picture figcaption b")).to_have_text("Your pictures")
    slide(guest, "direction-1")
    changed(guest, first)
    assert guest.locator("#picture figcaption b").inner_text() == "Scene 26"
    slide(explorer, "direction-1")
    expect(explorer.locator("#stand input:checked")).to_have_count(0)
    assert explorer.locator("#picture figcaption b").inner_text() == "Your pictures"
    guest.reload()
    expect(guest.locator("#picture img")).to_have_attribute("src", first)
    context.close()


@pytest.mark.soak
def test_a_hundred_fast_clicks(explorer: Page) -> None:
    """Of moves the last one counts; of a storm on the buttons, whatever they do, the page comes out alive."""
    explorer.get_by_role("button", name="Mix two scenes").click()
    expect(explorer.locator("#undo")).to_be_visible()
    explorer.locator("#stand label").nth(3).click()
    fourth = changed(explorer, shown(explorer))
    explorer.locator("#stand label").nth(0).click()
    changed(explorer, fourth)
    explorer.evaluate(
        """() => { const inputs = [...document.querySelectorAll('#stand input')];
        for (let k = 0; k < 100; k++) inputs[k % 4].click(); }"""
    )
    expect(explorer.locator("#picture img")).to_have_attribute("src", fourth)
    explorer.evaluate(
        """() => { const buttons = [...document.querySelectorAll('#open, #surprise, #undo')];
        for (let k = 0; k < 30; k++) buttons[k % 3].click(); }"""
    )
    title = explorer.locator("#picture figcaption b")
    for _ in range(40):  # a scene at a time, and not too many in a row: a click may have to be repeated
        explorer.locator("#number input").fill("4")
        explorer.locator("#open").click()
        explorer.wait_for_timeout(700)
        if title.inner_text() == "Scene 4":
            break
    expect(title).to_have_text("Scene 4")


def test_a_narrow_screen(browser: Browser, served: Served) -> None:
    """Nothing sticks out at 390 pixels, and the picture stays in sight while the camera is moved."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    opened_at(page, served)
    for name in ("Mix two scenes", "Or use your own"):
        page.get_by_role("button", name=name).click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#direction-4").scroll_into_view_if_needed()
    before = shown(page)
    page.locator("#direction-4 input[type=range]").press("Home")
    changed(page, before)
    box = page.locator("#picture img").bounding_box()
    assert box is not None
    assert 0 <= box["y"] < 844 - box["height"]
    context.close()


def test_the_keyboard_reaches_every_control(explorer: Page) -> None:
    wanted = {
        "number",
        "pictures",
        "open",
        "surprise",
        "mode",
        "switches",
        "stand",
        "pad",
        "direction-1",
        "share",
        "moved",
        "move-left",
        "mix",
    }
    reached: set[str] = set()
    ids_around_the_focus = """() => { let part = document.activeElement, ids = [];
        while (part) { ids.push(part.id); part = part.parentElement; } return ids; }"""
    explorer.locator("body").press("Home")
    for _ in range(70):
        explorer.keyboard.press("Tab")
        reached |= set(explorer.evaluate(ids_around_the_focus))
        if wanted <= reached:
            break
    assert wanted <= reached


def answer(address: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as reply:
            return reply.status, str(reply.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_middleware_stands_before_the_real_server(served: Served) -> None:
    status, headers = answer(served.address)
    assert status == 200
    assert "frame-ancestors 'none'" in headers
    for path in ("/gradio_api/info", "/gradio_api/file=/etc/passwd", "/gradio_api/openapi.json", "/docs"):
        assert answer(served.address + path)[0] == 404
    assert answer(served.address, Host="evil.example")[0] == 421


def test_a_page_for_others_asks_for_its_token(page: Page) -> None:
    """By the printed address a browser comes in and stays; nobody else does. A closed terminal ends it cleanly."""
    with serving("--host", "0.0.0.0", end=signal.SIGHUP) as server:
        address, _, token = server.address.replace("0.0.0.0", "127.0.0.1").partition("/?token=")
        assert len(token) >= 20
        for path in ("/", "/config", "/?token=wrong"):
            assert answer(address + path)[0] == 401
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}/?token={token}")
        expect(page.locator("#picture img")).to_be_visible()
        assert page.url == f"{address}/"
        upload(page, ("a.png", png((10, 220, 10))))
        expect(page.locator("#notice")).to_contain_text("Do not trust")


def test_a_model_of_single_pictures_is_offered_one(page: Page) -> None:
    """And no camera: it knows nothing of viewpoints."""
    with serving(model="umbra-clevr") as server:
        page.set_default_timeout(PATIENCE)
        page.goto(server.address)
        expect(page.locator("#picture img")).to_be_visible()
        for name in ("pictures", "pad", "stand", "share"):
            expect(page.locator(f"#{name}")).not_to_be_visible()
        before = shown(page)
        upload(page, ("a.png", png((10, 220, 10))))
        expect(page.locator("#own")).to_contain_text("One picture of a scene.")
        changed(page, before)
