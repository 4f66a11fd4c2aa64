"""The Blender program: bad input is named without Blender; meshes against closed forms; pictures against references.

Tests that render need a Python with `bpy`: `make blender-setup`, or its path in VIEWSLOTS_BLENDER_PYTHON.
"""

import importlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.spatial import ConvexHull

from viewslots.scenes.clevr.spec import Scene
from viewslots.scenes.tabletop.bodies import KINDS, WHOLE, Part, Piece, Solid, Turned, parts_of
from viewslots.scenes.tabletop.expose import render_tables
from viewslots.scenes.tabletop.family import TABLETOP
from viewslots.scenes.tabletop.light import texture
from viewslots.scenes.tabletop.stage import Stage as TableTables
from viewslots.scenes.tabletop.table_scene import Camera, Finish, Table, TableScene, Thing
from viewslots.scenes.tabletop.textures import PATTERNS
from viewslots.scenes.vectors import Vec

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "src/viewslots/scenes/blender"
REFERENCES = Path(__file__).parents[1] / "data/blender_refs"

Arrays = dict[str, np.ndarray]


def _blender_python() -> str | None:
    named = os.environ.get("VIEWSLOTS_BLENDER_PYTHON")
    usual = ROOT / ".venv-blender/bin/python"
    return named or (str(usual) if usual.exists() else None)


needs_blender = pytest.mark.skipif(
    _blender_python() is None, reason="no Blender: `make blender-setup` or set VIEWSLOTS_BLENDER_PYTHON"
)


def _run(*arguments: object, python: str = sys.executable, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [python, str(PROGRAM / "render.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | environment)


def _render(tree: dict[str, Any], folder: Path, samples: int, *options: str) -> Arrays:
    (folder / "scene.json").write_text(json.dumps(tree))
    python = _blender_python()
    assert python is not None
    done = _run(folder / "scene.json", "--out", folder / "out.npz", "--samples", samples, *options, python=python)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{folder / 'out.npz'}\n"
    assert sorted(path.name for path in folder.iterdir()) == ["out.npz", "scene.json"]
    with np.load(folder / "out.npz") as file:
        return dict(file)


def _reference(name: str) -> tuple[dict[str, Any], Arrays]:
    with np.load(REFERENCES / f"{name}.npz") as file:
        return json.loads((REFERENCES / f"{name}.json").read_text()), dict(file)


def _tree() -> dict[str, Any]:
    return {
        "objects": [
            {"shape": "cube", "r": 0.7, "rgb": [1, 0, 0], "material": "metal", "loc": [0, 0, 0.7], "theta": 0.5}
        ],
        "views": [{"location": [7.5, -6.5, 5.3]}],
        "image_full": [108, 80],
        "crop": {"up": 10, "down": 74, "left": 22, "right": 86},
    }


def _table_scene() -> TableScene:
    """Ours with a mug and a ball, from one camera, 64 x 64."""
    scene = TABLETOP["tabletop-plain"].sample(0, "test1", 0)
    coat = replace(scene.objects[0].finish, colors=((0.6, 0.2, 0.1),) * 2, metal=False, ior=1.5, alpha=0.2)
    mug = Thing("mug", {"radius": 0.05, "height": 0.1, "handle": 0.28}, (-0.07, 0.0, 0.0), 0.8, 0.0, coat, coat)
    ball = Thing("ball", {"radius": 0.05}, (0.08, 0.03, 0.0), 0.0, 0.0, coat, coat)
    camera = Camera((0.4, -0.3, 0.3), (0.0, 0.0, 0.04), 0.05, 1.6)
    return replace(scene, objects=(mug, ball), cameras=(camera,), height=64, width=64)


@pytest.fixture(scope="module")
def program() -> Iterator[SimpleNamespace]:
    """The program's modules that need no Blender; they are imported from its folder, as it does itself."""
    names = ("bodies", "description", "parts", "scenery")
    sys.path.insert(0, str(PROGRAM))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    sys.path.remove(str(PROGRAM))
    for name in names:
        del sys.modules[name]


# --- Bad input, without Blender --------------------------------------------------------------------------------


def _refused(folder: Path, text: str) -> str:
    """The one line that the program says about a description that it must refuse."""
    (folder / "scene.json").write_text(text)
    done = _run(folder / "scene.json", "--out", folder / "out.npz")
    assert done.returncode == 1
    assert not done.stdout
    assert done.stderr.count("\n") == 1
    assert not (folder / "out.npz").exists()
    return done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"objects": [}', "is not JSON: line 1, column 14"),
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1, 2]", "the description: a JSON object is needed, not a list"),
        ("{}", "missing key 'objects'"),
    ],
)
def test_text_that_is_no_description_is_refused(tmp_path: Path, text: str, says: str) -> None:
    assert says in _refused(tmp_path, text)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tree: tree.pop("views"), "missing key 'view' (one) or 'views' (a list)"),
        (lambda tree: tree.update(views=[]), "views: 1 to 1024 are needed, not 0"),
        (lambda tree: tree["views"][0].pop("location"), "missing key 'location' in views[0]"),
        (
            lambda tree: tree["views"][0].update(location=[0, 0, 9]),
            "views[0].location: must not lie on the vertical axis",
        ),
        (
            lambda tree: tree["views"][0].update(location=[9, 0, -1]),
            "views[0].location: a camera stands above the ground",
        ),
        (lambda tree: tree["objects"][0].pop("rgb"), "missing key 'rgb' in objects[0]"),
        (lambda tree: tree["objects"][0].update(rgb=[255, 0, 0]), "objects[0].rgb: channels are linear values in 0..1"),
        (lambda tree: tree["objects"][0].update(shape="cone"), "objects[0].shape: one of cube, sphere, cylinder"),
        (lambda tree: tree["objects"][0].update(material=None), "objects[0].material: one of rubber, metal is needed"),
        (lambda tree: tree["objects"][0].update(r=0), "objects[0].r: a radius in metres above 0"),
        (lambda tree: tree["objects"][0].update(r=True), "objects[0].r: a number is needed, not true or false"),
        (lambda tree: tree["objects"][0].update(loc=[0, 0]), "objects[0].loc: three numbers are needed, not 2"),
        (lambda tree: tree["objects"][0].update(theta=math.nan), "objects[0].theta: a finite number is needed"),
        (lambda tree: tree["objects"][0].update(theta=10**400), "objects[0].theta: a finite number is needed"),
        (lambda tree: tree.update(objects=tree["objects"] * 65), "objects: 65 given"),
        (
            lambda tree: tree.update(lights_area={"Lamp_Key": "up"}),
            "lights_area.Lamp_Key: a list is needed, not a text",
        ),
        (lambda tree: tree["crop"].pop("up"), "missing key 'up' in crop"),
        (lambda tree: tree["crop"].update(right=109), "do not lie in a 108 x 80 picture"),
        (lambda tree: tree["crop"].update(right=23), "crop: sides must be 4..2048 pixels, not 1 x 64"),
        (lambda tree: tree["crop"].update(right=85.5), "crop.right: a whole number of pixels"),
        (lambda tree: tree.update(image_full=[108]), "image_full: [width, height] is needed"),
        (lambda tree: tree.update(focal_px=0), "focal_px: 0 pixels is no focal length"),
        (lambda tree: tree.update(backdrop="sea"), 'backdrop: one of plane, sweep is needed, not "sea"'),
    ],
)
def test_wrong_values_are_named(tmp_path: Path, change: Callable[[dict[str, Any]], object], says: str) -> None:
    tree = _tree()
    change(tree)
    assert says in _refused(tmp_path, json.dumps(tree))


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    scene = tmp_path / "scene.json"
    scene.write_text(json.dumps(_tree()))
    (tmp_path / "binary.json").write_bytes(b"\x89PNG")
    for source, out, says in [
        (tmp_path / "none.json", tmp_path / "out.npz", "none.json: No such file"),
        (tmp_path / "binary.json", tmp_path / "out.npz", "is not a text file"),
        (scene, tmp_path / "none/out.npz", "there is no folder"),
        (scene, tmp_path, "it is a folder"),
    ]:
        done = _run(source, "--out", out)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert says in done.stderr


def test_without_blender_the_way_to_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "bpy.py").write_text("raise ImportError('none here')")
    (tmp_path / "scene.json").write_text(json.dumps(_tree()))
    done = _run(tmp_path / "scene.json", "--out", tmp_path / "out.npz", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no usable bpy (none here): run 'make blender-setup'" in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [["--samples", "0"], ["--samples", "9" * 99], ["--samples", "many"], ["--threads", "-1"], ["--depth", "3"], []],
)
def test_wrong_usage_exits_with_2(wrong: list[str]) -> None:
    done = _run("scene.json", *(["--out", "out.npz", *wrong] if wrong else []))
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_descriptions_are_read_where_torch_is_not(tmp_path: Path) -> None:
    """The environment of Blender has no torch: the scene is read, and the missing Blender is what is said."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch')")
    (tmp_path / "bpy.py").write_text("raise ImportError('no Blender')")
    (tmp_path / "scene.json").write_text(json.dumps(_table_scene().to_dict()))
    done = _run(tmp_path / "scene.json", "--out", tmp_path / "out.npz", PYTHONPATH=str(tmp_path))
    assert "no usable bpy (no Blender)" in done.stderr
    broken = _table_scene().to_dict() | {"lamps": []}
    (tmp_path / "scene.json").write_text(json.dumps(broken))
    done = _run(tmp_path / "scene.json", "--out", tmp_path / "out.npz", PYTHONPATH=str(tmp_path))
    assert "scene.json: lamps: expected a list of 1 to" in done.stderr


# --- Descriptions and meshes --------------------------------------------------------------------------------


def test_own_layout_means_the_same_as_the_references(program: SimpleNamespace) -> None:
    """viewslots reads a reference and writes its own layout: the Blender program sees the same scene in both."""
    parse = program.description.parse_scene
    tree = json.loads((REFERENCES / "ref_00.json").read_text())
    theirs, ours = parse(tree), parse(json.loads(json.dumps(Scene.from_dict(tree).to_dict())))
    assert repr(theirs) == repr(ours)
    assert (ours.film.width, ours.film.height, ours.film.centre, ours.film.focal_px) == (64, 64, (32, 30), 118.125)


def _core_volume(edge: float) -> float:
    """Volume of a rounded cube of half-size 1: core, six slabs, twelve quarter cylinders, eight eighths of a ball."""
    side = 2 * (1 - edge)
    return side**3 + 6 * side**2 * edge + 3 * math.pi * edge**2 * side + 4 / 3 * math.pi * edge**3


def _rim_volume(rim: float) -> float:
    """Volume of a cylinder of radius and half-height 1, less what rounding takes from both rims (Pappus)."""
    taken = rim**2 * (1 - math.pi / 4)
    inner = (rim**2 * rim / 2 - math.pi / 4 * rim**2 * (4 * rim / (3 * math.pi))) / taken
    return 2 * math.pi - 2 * taken * 2 * math.pi * (1 - rim + inner)


def _volume_and_area(mesh: Any) -> tuple[float, float]:
    """By the divergence theorem; on the way, faces must agree with the stored normals up to the tessellation."""
    first, second, third = (mesh.points[mesh.faces[:, corner]] for corner in range(3))
    twice = np.cross(second - first, third - first)
    size = np.linalg.norm(twice, axis=1)
    assert (size > 0).all()
    assert ((mesh.normals[mesh.faces] * twice[:, None]).sum(-1) > 0.97 * size[:, None]).all()
    assert np.linalg.norm(mesh.normals, axis=1) == pytest.approx(np.ones(len(mesh.points)))
    return float((first * twice).sum()) / 6, float(size.sum()) / 2


@pytest.mark.parametrize(
    ("shape", "volume"),
    [("sphere", 4 / 3 * math.pi), ("cube", _core_volume(0.184)), ("cylinder", _rim_volume(0.054))],
)
def test_meshes_enclose_the_right_volume_and_face_outwards(program: SimpleNamespace, shape: str, volume: float) -> None:
    mesh = getattr(program.bodies, shape)()
    enclosed, _ = _volume_and_area(mesh)
    assert enclosed == pytest.approx(volume, rel=2e-3)
    assert np.abs(mesh.points).max(0) == pytest.approx([1, 1, 1])


def _sizes(kind: str, share: float) -> dict[str, float]:
    """Every parameter this far within its range."""
    between = {name: low + share * (high - low) for name, (low, high) in KINDS[kind].ranges.items()}
    return {name: float(round(value)) if name in WHOLE else value for name, value in between.items()}


def _turned_area(piece: Piece) -> float:
    """Of a turned piece: 2 pi times the integral of sqrt(r^2 + (r r')^2), with r^2 = a + b z + c z^2."""
    if piece.flat:
        return math.pi * abs(piece.r1**2 - piece.r0**2)
    a, b, c = piece.square
    area, _ = quad(lambda z: math.sqrt(max(a + b * z + c * z * z, 0) + (b / 2 + c * z) ** 2), piece.z0, piece.z1)
    return 2 * math.pi * area


def _part_area(part: Part) -> float:
    shape = part.shape
    if isinstance(shape, Turned):
        return sum(map(_turned_area, shape.pieces))
    if isinstance(shape, Solid):
        return float(ConvexHull(shape.corners).area)
    tube = 2 * min(shape.half_angle, math.pi) * shape.radius * 2 * math.pi * shape.tube
    return tube if shape.half_angle >= math.pi else tube + 2 * 4 * math.pi * shape.tube**2


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_bodies_have_the_area_of_their_formulas(program: SimpleNamespace, kind: str) -> None:
    """Coarse and fine meshes alike; the ends of a bent tube are whole balls."""
    for share, step in ((0.1, 10.0), (0.8, 0.004)):
        for part in parts_of(kind, _sizes(kind, share)):
            plain = replace(part, stretch=(1.0, 1.0, 1.0))
            _, area = _volume_and_area(program.parts.part_mesh(plain, step))
            assert area == pytest.approx(_part_area(plain), rel=3e-3)
            _volume_and_area(program.parts.part_mesh(part, step))


@pytest.mark.parametrize(
    ("kind", "volume"),
    [
        ("ball", lambda p: 4 / 3 * math.pi * p["radius"] ** 3),
        ("cone", lambda p: math.pi / 3 * p["radius"] ** 2 * p["height"]),
        ("ring", lambda p: 2 * math.pi**2 * p["radius"] * p["tube"] ** 2),
        ("box", lambda p: p["length"] * p["width"] * p["height"]),
        ("pyramid", lambda p: p["sides"] * math.tan(math.pi / p["sides"]) * p["radius"] ** 2 * p["height"] / 3),
        ("nut", lambda p: p["sides"] * math.tan(math.pi / p["sides"]) * p["radius"] ** 2 * p["height"]),
    ],
)
def test_bodies_without_inner_walls_enclose_their_volume(
    program: SimpleNamespace, kind: str, volume: Callable[[dict[str, float]], float]
) -> None:
    sizes = _sizes(kind, 0.4)
    (part,) = parts_of(kind, sizes)
    enclosed, _ = _volume_and_area(program.parts.part_mesh(part, 0.004))
    assert enclosed == pytest.approx(volume(sizes), rel=3e-3)


def test_points_of_a_textured_body_are_close_together(program: SimpleNamespace) -> None:
    finish = Finish(colors=((0.1, 0.2, 0.3), (0.9, 0.8, 0.7)), pattern="checks")
    for kind in KINDS:
        for part in parts_of(kind, _sizes(kind, 0.5)):
            mesh = program.scenery.painted(part, finish).mesh
            corners = mesh.points[mesh.faces]
            longest = np.linalg.norm(corners - np.roll(corners, 1, 1), axis=-1).max()
            assert longest < 2.5 * program.scenery.FINE * max(part.stretch)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_colours_are_those_of_our_renderer(program: SimpleNamespace, pattern: str) -> None:
    """Points of a turned and tilted body, coloured in its frame here and in the world there."""
    finish = Finish(((0.1, 0.2, 0.3), (0.9, 0.8, 0.7)), pattern, 0.03, 0.7, 0.4, (0.2, 3.1, 0.6))  # type: ignore[arg-type]
    thing = replace(_table_scene().objects[0], finish=finish, accent=finish, theta=1.1, tilt=0.6)
    scene = replace(_table_scene(), objects=(thing,))
    local = np.random.default_rng(0).uniform(-0.2, 0.2, (4000, 3))
    world = Vec.of((local @ np.transpose(thing.axes) + thing.location).tolist(), "cpu")
    number = torch.zeros(len(local), dtype=torch.long)
    theirs = texture(TableTables.of([scene], 1, "cpu").finishes.take(number), world)
    ours = program.scenery.colors_at(finish, local)
    close = np.abs(ours - torch.stack([theirs.x, theirs.y, theirs.z], 1).numpy()).max(1) < 0.01
    # Single precision moves a few points across the edge of a pattern.
    assert close.mean() > 0.995


@pytest.mark.parametrize("shape", ["rectangle", "round"])
@pytest.mark.parametrize("cloth", [None, (0.2, 0.3), (0.55, 0.1), (0.5, 0.35), (2.0, 2.0)])
def test_table_and_cloth_share_the_top(program: SimpleNamespace, shape: str, cloth: tuple[float, float] | None) -> None:
    """Areas of level surfaces at z = 0 by finish, against a count of points in a fine grid."""
    plain, checked = Finish(((0.5,) * 3,) * 2), Finish(((0.1,) * 3, (0.9,) * 3), "checks")
    width = 0.6 if shape == "round" else 0.4
    table = Table(shape, 0.6, width, 0.03, 0.7, 0.3, plain, cloth and checked, *(cloth or (0.0, 0.0)))  # type: ignore[arg-type]
    x, y = np.meshgrid(*[(np.arange(1200) + 0.5) / 1000 - 0.6] * 2)
    on_table = np.hypot(x, y) < 0.6 if shape == "round" else np.abs(y) < width
    covered = on_table & (np.abs(x) < cloth[0]) & (np.abs(y) < cloth[1]) if cloth else np.zeros_like(on_table)
    areas = {plain: 0.0, checked: 0.0}
    for surface in program.scenery.table_surfaces(table):
        if np.ptp(surface.mesh.points[:, 2]) == 0 and surface.mesh.points[0, 2] == 0:
            areas[surface.finish] += _volume_and_area(surface.mesh)[1]
    assert areas[checked] == pytest.approx(covered.sum() / 1e6, abs=3e-3)
    assert areas[plain] == pytest.approx((on_table & ~covered).sum() / 1e6, abs=3e-3)


def test_a_picture_on_a_flat_surface_shows_the_texture_there(program: SimpleNamespace) -> None:
    room = replace(_table_scene().room, walls=Finish(((0.0,) * 3, (1.0,) * 3), "noise", period=2.0, azimuth=0.4))
    for surface in program.scenery.room_surfaces(room, -0.7):
        if surface.picture is None:
            continue
        weights = np.random.default_rng(1).dirichlet(np.ones(4), 500)
        points, places = weights @ surface.mesh.points, weights @ surface.places
        column, row = (np.minimum(places * len(surface.picture), len(surface.picture) - 1)).astype(int).T
        wanted = program.scenery.colors_at(surface.finish, points)
        assert np.abs(surface.picture[row, column] - wanted).max() < 0.02


# --- Pictures --------------------------------------------------------------------------------


@needs_blender
def test_picture_and_truth_match_a_reference(tmp_path: Path) -> None:
    """64 samples against 1,024 of the original CLEVR file: what is left is noise (measured: 1.1 and 3.0 of 255)."""
    tree, truth = _reference("ref_00")
    made = _render(tree, tmp_path, samples=64)
    light = np.clip(truth["linear"].astype(np.float64), 0, 1)
    picture = 255 * np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    error = np.abs(made["image"][0] - picture)
    assert error.mean() < 1.8
    assert error[truth["segment"] != 255].mean() < 4.5
    assert (made["segment"][0] == truth["segment"]).mean() > 0.995
    alpha, complete = truth["amodal"].astype(int), made["shapes"][0].astype(int)
    iou = np.minimum(alpha, complete).sum((1, 2)) / np.maximum(alpha, complete).sum((1, 2))
    assert (iou > 0.98).all()
    assert {key: (array.shape, array.dtype.name) for key, array in made.items()} == {
        "image": ((1, 64, 64, 3), "uint8"),
        "segment": ((1, 64, 64), "uint8"),
        "shapes": ((1, 3, 64, 64), "uint8"),
        "linear": ((1, 64, 64, 3), "float32"),
    }


@needs_blender
def test_hidden_bodies_keep_their_complete_shape(tmp_path: Path) -> None:
    """Four bodies in a row, seen along it: more than one render's three channels, each complete, the nearest seen."""
    body = {"shape": "sphere", "r": 0.5, "rgb": [0.2, 0.5, 0.1], "material": "rubber"}
    tree = _tree() | {"objects": [body | {"loc": [2 - k, 0, 0.5]} for k in range(4)]}
    tree["views"] = [{"location": [11, 0, 1]}, {"location": [-11, 0, 1]}]
    made = _render(tree, tmp_path, samples=4)
    covered = (made["shapes"] >= 128).sum((2, 3))
    # Radius in pixels of a ball of radius r at distance d: f r / sqrt(d^2 - r^2).
    for m, sign in enumerate((1, -1)):
        distance = np.array([math.hypot(11 - sign * (2 - k), 0.5) for k in range(4)])
        expected = math.pi * 118.125**2 * 0.25 / (distance**2 - 0.25)
        assert covered[m] == pytest.approx(expected, rel=0.08)
    near = made["shapes"][[0, 1], [0, 3]] >= 128
    assert (made["segment"][0][near[0]] == 0).mean() > 0.97
    assert (made["segment"][1][near[1]] == 3).mean() > 0.97


@needs_blender
def test_backdrop_and_empty_scene(tmp_path: Path) -> None:
    """From a low camera the plane ends at a black horizon; the sweep closes the picture with lit ground."""
    tree = _tree() | {"objects": [], "views": [{"location": [7.5, -6.5, 1.0]}]}
    plane, sweep = (_render(tree | {"backdrop": kind}, tmp_path, samples=4) for kind in ("plane", "sweep"))
    assert plane["shapes"].shape == (1, 0, 64, 64)
    assert (plane["segment"] == 255).all()
    assert (plane["linear"][0, 0] == 0).all()
    assert (sweep["linear"][0, 0] > 0.005).all()
    assert plane["linear"][0, -8:].mean() == pytest.approx(sweep["linear"][0, -8:].mean(), rel=0.05)


@needs_blender
def test_tabletop_matches_our_renderer(tmp_path: Path) -> None:
    """A mug and a ball with a coat, in a room: the marks of docs/blender.md (measured: see there)."""
    scene = _table_scene()
    pictures, _ = render_tables([scene], 2, quality="reference")
    made = _render(scene.to_dict(), tmp_path, samples=64)
    error = np.abs(made["image"][0].astype(int) - pictures.image[0, 0])
    seen = pictures.segment[0, 0] != 255
    assert seen.mean() > 0.1
    assert error.mean() < 4
    assert error[seen].mean() < 8
    assert (made["segment"] == pictures.segment[0]).mean() > 0.995
    ours, theirs = pictures.shapes[0, 0].astype(int), made["shapes"][0].astype(int)
    assert (np.minimum(ours, theirs).sum((1, 2)) / np.maximum(ours, theirs).sum((1, 2)) > 0.98).all()
    image = _render(scene.to_dict(), tmp_path, 4, "--no-truth", "--bounces", "1")
    assert sorted(image) == ["image", "linear"]
