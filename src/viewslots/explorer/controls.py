"""The parts of the page and where they stand. `app` alone imports this: it needs gradio."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib.resources import files
from itertools import chain, repeat
from typing import Any

import gradio as gr

from viewslots.explorer import panels
from viewslots.explorer.opened import MOST_PICTURES
from viewslots.explorer.paint import MODES
from viewslots.explorer.session import REACH
from viewslots.explorer.uploads import MOST_FILES

FIRST_SCENE, SECOND_SCENE, PICTURES = 26, 17, 4
MOST_SLIDERS = 6
PAD_WAYS = ("left and right on the pad", "up and down on the pad")
FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif"]
MONO_FONTS = ["ui-monospace", "Menlo", "Consolas", "monospace"]

INTRODUCTION = """# viewslots: turn the camera
A model was shown a few pictures of one scene, taken from places it was not told. Here you see what it understood: which
objects there are, what hides behind what, and how all of it looks from somewhere else. Nobody ever told it what an
object is."""
OF_ONE_PICTURE = """# viewslots: take a picture apart
A model was shown one picture of a scene. Here you see what it understood: which objects there are, and what hides
behind what. Nobody ever told it what an object is."""
CAMERA = """Drag the dot, or use its arrow keys: left and right, up and down are the two directions in which the given
pictures differ most. Rings with numbers are the places of the pictures. Beyond the dashed line the model guesses: 99 of
100 viewpoints that it knows lie within. The sliders are the same directions, and finer ones."""
WAYS = {"left": (-0.1, 0.0), "right": (0.1, 0.0), "up": (0.0, -0.1), "down": (0.0, 0.1)}
"""Shares of the picture by which one click moves an object: right, down."""


@dataclass(frozen=True, eq=False)
class PictureParts:
    """The large picture and how to look at it."""

    notice: gr.HTML
    picture: gr.HTML
    mode: gr.Radio
    switches: gr.CheckboxGroup


@dataclass(frozen=True, eq=False)
class SceneParts:
    number: gr.Number
    pictures: gr.Slider
    open: gr.Button
    surprise: gr.Button
    files: gr.File


@dataclass(frozen=True, eq=False)
class CameraParts:
    stand: gr.Radio
    pad: gr.HTML
    sliders: tuple[gr.Slider, ...]
    start: gr.Dropdown
    end: gr.Dropdown
    share: gr.Slider


@dataclass(frozen=True, eq=False)
class ReportParts:
    given: gr.HTML
    layers: gr.HTML
    facts: gr.HTML


@dataclass(frozen=True, eq=False)
class MixParts:
    """Edits: where an object stands, and what to take from a second scene."""

    moved: gr.Dropdown
    ways: tuple[gr.Button, ...]
    """In the order of WAYS."""
    take_back: gr.Button
    other_number: gr.Number
    open_other: gr.Button
    mine: gr.Dropdown
    theirs: gr.Dropdown
    exchange: gr.Button
    add: gr.Button
    ground: gr.Button
    undo: gr.Button
    second: gr.HTML


@dataclass(frozen=True, eq=False)
class Controls:
    look: PictureParts
    scene: SceneParts
    camera: CameraParts
    report: ReportParts
    mix: MixParts

    def everything(self) -> list[Any]:
        """All parts that an answer may change."""
        return [part for group in fields(self) for part in parts_of(getattr(self, group.name))]


def parts_of(group: Any) -> Iterator[Any]:
    for field in fields(group):
        value = getattr(group, field.name)
        yield from value if isinstance(value, tuple) else (value,)


def laid_out(directions: int, single: bool) -> Controls:
    """Wide: the large picture on the left stays in sight beside all controls and facts on the right; pictures below.
    Narrow: the large picture stays at the top. `single`: a model of single pictures has no camera to move."""
    gr.Markdown(OF_ONE_PICTURE if single else INTRODUCTION)
    notice = gr.HTML(elem_id="notice", js_on_load=None)
    with gr.Row(elem_classes="vs-columns"):
        with gr.Column(scale=5, min_width=320, elem_classes="vs-stays"):
            look = picture_parts(notice)
        with gr.Column(scale=4, min_width=320):
            scene = scene_parts(single)
            camera = camera_parts(directions, single)
            mix = mix_parts()
            facts = gr.HTML(elem_id="facts", js_on_load=None)
    given, layers = gr.HTML(elem_id="given", js_on_load=None), gr.HTML(elem_id="layers", js_on_load=None)
    return Controls(look, scene, camera, ReportParts(given, layers, facts), mix)


def picture_parts(notice: gr.HTML) -> PictureParts:
    return PictureParts(
        notice=notice,
        picture=gr.HTML(panels.waiting(), elem_id="picture", js_on_load=None, min_height=320),
        mode=gr.Radio(list(MODES), value=MODES[0], label="Look at it as", elem_id="mode"),
        switches=gr.CheckboxGroup([], label="Switch on and off", elem_id="switches"),
    )


def scene_number(value: int, label: str, name: str) -> gr.Number:
    """Without the framework's bounds, which round, and answer with an error that says nothing."""
    return gr.Number(value, label=label, elem_id=name, min_width=120)


def inset(text: str) -> None:
    """A few words among the controls of a group."""
    gr.HTML(text, js_on_load=None, elem_classes="vs-inset")


def slider(
    least: float, most: float, value: float, step: float, label: str, name: str, visible: bool = True
) -> gr.Slider:
    """Without the framework's reset button, which would move the slider but not the picture."""
    return gr.Slider(
        least, most, value, step=step, label=label, elem_id=name, min_width=120, buttons=[], visible=visible
    )


def scene_parts(single: bool) -> SceneParts:
    asked_for = (
        "One picture of a scene" if single else f"One to {MOST_FILES} pictures of one scene from different sides"
    )
    with gr.Group():
        inset("<h3>Choose a scene</h3>")
        with gr.Row():
            number = scene_number(FIRST_SCENE, "Scene number", "number")
            pictures = slider(1, MOST_PICTURES, PICTURES, 1, "Pictures it is shown", "pictures", visible=not single)
        with gr.Row():
            open_it = gr.Button("Show this scene", variant="primary", elem_id="open", min_width=120)
            surprise = gr.Button("Surprise me", elem_id="surprise", min_width=120)
        with gr.Accordion("Or use your own pictures", open=False, elem_id="own"):
            gr.Markdown(
                f"{asked_for}{'' if single else ', or a short video'}. {'Its' if single else 'Of each the'} middle "
                "is cut out in the shape that the model knows, and read; then the files are thrown away: nothing is "
                "kept on disk or sent elsewhere."
            )
            label = "Your picture" if single else "Your pictures or video"
            files = gr.File(file_count="single" if single else "multiple", label=label, height=120, elem_id="files")
    return SceneParts(number, pictures, open_it, surprise, files)


def camera_parts(directions: int, single: bool) -> CameraParts:
    with gr.Group(visible=not single):
        inset("<h3>Move the camera</h3>")
        stand = gr.Radio([], label="Stand where a picture was taken", elem_id="stand")
        pad = gr.HTML(
            [0.0, 0.0],
            html_template=asset("pad.html"),
            css_template=asset("pad.css"),
            js_on_load=asset("pad.js").replace("REACH", str(REACH)),
            elem_id="pad",
            padding=True,
        )
        inset(f'<p class="vs-note">{CAMERA}</p>')
        sliders = [
            slider(-REACH, REACH, 0, 0.05, f"Direction {axis + 1}: {way}", f"direction-{axis + 1}")
            for axis, way in zip(range(min(directions, MOST_SLIDERS)), chain(PAD_WAYS, repeat("finer")), strict=False)
        ]
        inset("<p>Walk from one picture to another:</p>")
        with gr.Row():
            start = gr.Dropdown([], label="From", elem_id="from", min_width=120)
            end = gr.Dropdown([], label="To", elem_id="to", min_width=120)
        share = slider(0, 1, 0, 0.02, "How far along", "share")
    return CameraParts(stand, pad, tuple(sliders), start, end, share)


def mix_parts() -> MixParts:
    with gr.Group():
        inset("<h3>Change the scene</h3>")
        moved = gr.Dropdown([], label="Move this object", elem_id="moved", min_width=120)
        with gr.Row():
            ways = tuple(gr.Button(name, elem_id=f"move-{name}", min_width=60) for name in WAYS)
            back = gr.Button("Undo", elem_id="take-back", min_width=60)
        with gr.Accordion("Mix two scenes: exchange objects and backgrounds", open=False, elem_id="mix"):
            with gr.Row():
                number = scene_number(SECOND_SCENE, "Second scene", "other")
                open_other = gr.Button("Open it", elem_id="open-other", min_width=120)
            second = gr.HTML(panels.second_scene(None), elem_id="second", js_on_load=None)
            with gr.Row():
                mine = gr.Dropdown([], label="Object of this scene", elem_id="mine", min_width=120)
                theirs = gr.Dropdown([], label="Object of the second", elem_id="theirs", min_width=120)
            with gr.Row():
                exchange = gr.Button("Exchange the two", elem_id="exchange", min_width=140)
                add = gr.Button("Add theirs", elem_id="add", min_width=140)
            with gr.Row():
                ground = gr.Button("Take its background", elem_id="ground", min_width=140)
                undo = gr.Button("Undo", elem_id="undo", min_width=140)
    return MixParts(moved, ways, back, number, open_other, mine, theirs, exchange, add, ground, undo, second)


def asset(name: str) -> str:
    """A file of the page, beside this one."""
    return (files("viewslots") / "explorer" / name).read_text(encoding="utf-8")


def theme() -> gr.themes.Base:
    """With fonts that are on every machine: others would be fetched from a web site."""
    return gr.themes.Default(font=FONTS, font_mono=MONO_FONTS)
