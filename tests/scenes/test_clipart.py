"""Abstract scenes: rules read back from pictures, colours against colorsys, painting against loops, bad input."""

import colorsys
import hashlib
import json
import math
from collections import Counter
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from viewslots.errors import UserError
from viewslots.scenes.flat import clipart, drawings, layers
from viewslots.scenes.flat.album import KINDS
from viewslots.scenes.flat.clipart import ClipartScene, ClipartWorld, Jitter, Piece
from viewslots.scenes.flat.layers import Layer

WORLD = ClipartWorld()
HOME = {kind.name: kind.home for kind in KINDS}
CALM = Jitter(0.0, 1.0, 1.0)


def scenes_of(split: str, count: int, seed: int = 5) -> list[ClipartScene]:
    return [WORLD.sample(seed, split, index) for index in range(count)]


@pytest.mark.parametrize(("split", "low", "high"), [("train", 2, 4), ("test1", 2, 4), ("live", 2, 4), ("test2", 5, 6)])
def test_counts(split: str, low: int, high: int) -> None:
    scenes = scenes_of(split, 80)
    assert {len(scene.pieces) for scene in scenes} == set(range(low, high + 1))
    assert WORLD.slots(split) == high
    for scene in scenes:
        assert max(Counter(piece.kind for piece in scene.pieces).values()) == 1


def test_base_sizes_lie_in_the_stated_ranges() -> None:
    ground = [kind.base for kind in KINDS if kind.home == "ground"]
    sky = [kind.base for kind in KINDS if kind.home == "sky"]
    assert len(ground) == len(sky) == 5
    assert 0.29 <= min(ground) <= max(ground) <= 0.42
    assert 0.13 <= min(sky) <= max(sky) <= 0.21


def test_descriptions_obey_the_rules() -> None:
    pieces = [piece for scene in scenes_of("test2", 150) for piece in scene.pieces]
    for piece in pieces:
        assert 0 <= piece.left <= 1
        assert -0.1 <= piece.jitter.hue <= 0.1
        assert 0.9 <= piece.jitter.saturation <= 1
        assert 0.9 <= piece.jitter.value <= 1
        if HOME[piece.kind] == "ground":
            assert 0.6 <= piece.bottom <= 1
            assert piece.size == pytest.approx(np.interp(piece.bottom, [0.6, 1.0], [0.75, 1.0]), abs=2e-6)
        else:
            assert 0.75 <= piece.size <= 1
            assert piece.bottom <= (0.6 if piece.kind == "balloon" else 0.47)
    lowest = max(piece.bottom for piece in pieces if piece.kind == "balloon")
    assert lowest > 0.5


def test_pieces_lie_where_they_say_and_are_never_cut() -> None:
    art = clipart.drawn_album().art
    for scene in scenes_of("test2", 40):
        shapes = WORLD.render([scene], 6).shapes[0, 0]
        for k, piece in enumerate(scene.pieces):
            width, height = art[piece.kind].extent(piece.size)
            small = art[piece.kind].image.resize((width, height), Image.Resampling.HAMMING)
            assert shapes[k].sum(dtype=int) == np.asarray(small)[..., 3].sum(dtype=int)
            rows, columns = np.flatnonzero(shapes[k].any(1)), np.flatnonzero(shapes[k].any(0))
            assert rows[-1] + 1 == pytest.approx(piece.bottom * 64, abs=1.01)
            assert columns[0] == pytest.approx(piece.left * (64 - width), abs=1.51)
            longest = max(art[piece.kind].image.size) / art[piece.kind].detail * art[piece.kind].kind.base
            assert max(width, height) == pytest.approx(longest * piece.size, abs=0.51)


def test_depth_order_follows_the_rules() -> None:
    scenes = scenes_of("test2", 150)
    order = WORLD.render(scenes, 6).depth_order[:, 0]
    suns = 0
    for s, scene in enumerate(scenes):
        near = dict(zip(scene.pieces, order[s].tolist(), strict=False))
        for a, b in combinations(scene.pieces, 2):
            homes = HOME[a.kind] + HOME[b.kind]
            if homes == "groundground":
                assert (near[a] > near[b]) == (a.bottom > b.bottom)
            elif homes == "skysky":
                suns += "sun" in (a.kind, b.kind)
                assert (near[a] > near[b]) == (a.kind != "sun")
            else:
                assert (near[a] > near[b]) == (homes == "groundsky")
        assert (order[s, len(scene.pieces) :] == -np.inf).all()
    assert suns > 100


@pytest.mark.parametrize("split", ["train", "test2"])
def test_every_piece_keeps_a_quarter_visible(split: str) -> None:
    scenes = scenes_of(split, 150)
    pictures = WORLD.render(scenes, 6)
    shares = []
    for s, scene in enumerate(scenes):
        covered, order = pictures.shapes[s, 0] >= 128, pictures.depth_order[s, 0]
        for k in range(len(scene.pieces)):
            nearer = covered[order > order[k]].any(0)
            shares.append(np.count_nonzero(covered[k] & ~nearer) / np.count_nonzero(covered[k]))
    assert min(shares) >= 0.25
    assert split != "test2" or min(shares) < 0.35


def test_invariants_of_pictures() -> None:
    scenes = scenes_of("test2", 60)
    pictures = WORLD.render(scenes, 6)
    for k in range(6):
        assert (pictures.shapes[:, :, k][pictures.segment == k] > 0).all()
    assert set(np.unique(pictures.segment)) == {0, 1, 2, 3, 4, 5, 255}
    np.testing.assert_array_equal(pictures.overlap, np.count_nonzero(pictures.shapes >= 128, axis=2))
    alone = (pictures.overlap == 1) & (np.count_nonzero(pictures.shapes, axis=2) == 1)
    np.testing.assert_array_equal(pictures.segment[alone], (pictures.shapes >= 128).argmax(2)[alone])
    np.testing.assert_array_equal(pictures.num_objects, [len(scene.pieces) for scene in scenes])
    assert not pictures.shadows.any()
    assert not pictures.camera.any()


def test_painting_against_a_loop_over_pixels() -> None:
    """Back to front with the over operator, and shares from their product, where `paint` goes front to back."""
    rng = np.random.default_rng(2)
    ground = rng.uniform(0, 255, (7, 9, 3))
    stack = [
        Layer(
            rng.uniform(0, 255, (7, 9, 3)), rng.choice([0, 1, 90, 127, 128, 255], (7, 9)).astype(np.uint8), float(near)
        )
        for near in rng.permutation(4)
    ]
    image, segment = layers.paint(ground, stack, 7, 9)
    for row, column in product(range(7), range(9)):
        color = ground[row, column]
        for layer in sorted(stack, key=lambda layer: layer.nearness):
            alpha = layer.alpha[row, column] / 255
            color = alpha * layer.color[row, column] + (1 - alpha) * color
        np.testing.assert_allclose(image[row, column], color, atol=0.501)
        shares = [
            layer.alpha[row, column]
            / 255
            * math.prod(1 - other.alpha[row, column] / 255 for other in stack if other.nearness > layer.nearness)
            for layer in stack
        ]
        expected = int(np.argmax(shares)) if 255 * sum(shares) >= 127.5 else 255
        assert segment[row, column] == expected


channel = st.integers(0, 255)


@given(st.tuples(channel, channel, channel), st.floats(-0.1, 0.1), st.floats(0.9, 1), st.floats(0.9, 1))
def test_jitter_against_colorsys(rgb: tuple[int, int, int], hue: float, saturation: float, value: float) -> None:
    h, s, v = colorsys.rgb_to_hsv(*(part / 255 for part in rgb))
    expected = colorsys.hsv_to_rgb((h + hue) % 1, s * saturation, v * value)
    found = Jitter(hue, saturation, value).apply(clipart.to_hsv(np.array(rgb) / 255))
    np.testing.assert_allclose(found, 255 * np.array(expected), atol=1e-6)


def test_jitter_reaches_every_pixel_of_a_piece_and_of_the_background() -> None:
    jitter = Jitter(-0.08, 0.93, 0.91)
    piece = Piece("bear", 0.5, 0.9, 0.9, CALM)
    calm = WORLD.render([ClipartScene((piece,), CALM)], 1)
    changed = WORLD.render([ClipartScene((Piece("bear", 0.5, 0.9, 0.9, jitter),), jitter)], 1)
    whole = np.isin(calm.shapes[0, 0, 0], (0, 255))
    assert np.count_nonzero(whole) > 3800
    for before, after in zip(calm.image[0, 0][whole], changed.image[0, 0][whole], strict=True):
        h, s, v = colorsys.rgb_to_hsv(*before / 255)
        expected = colorsys.hsv_to_rgb((h - 0.08) % 1, s * 0.93, v * 0.91)
        np.testing.assert_allclose(after, 255 * np.array(expected), atol=1.5)


def test_same_pixels_for_every_batch_and_order() -> None:
    whole = WORLD.render(scenes_of("train", 9), 4)
    other = ClipartWorld()
    for index in (7, 2, 4):
        part = other.render([other.sample(5, "train", index)], 4, device="cpu", quality="reference")
        for key in WORLD.keys:
            np.testing.assert_array_equal(getattr(part, key)[0], getattr(whole, key)[index])


def test_descriptions_are_equal_everywhere() -> None:
    """Written down once: any machine must draw the same scenes, and any Pillow the same outlines."""
    text = json.dumps([scene.to_dict() for split in ("train", "test2") for scene in scenes_of(split, 40)])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "4285221dc798cca8"


def test_draws_are_even() -> None:
    scenes = [WORLD.sample(1, "train", index) for index in range(1200)]
    pieces = [piece for scene in scenes for piece in scene.pieces]
    assert np.mean([len(scene.pieces) for scene in scenes]) == pytest.approx(3, abs=5 * math.sqrt(2 / 3 / 1200))
    kinds = Counter(piece.kind for piece in pieces)
    mean = len(pieces) / 10
    assert max(abs(kinds[kind.name] - mean) for kind in KINDS) < 5 * math.sqrt(mean)
    ground = [piece.bottom for piece in pieces if HOME[piece.kind] == "ground"]
    assert np.mean(ground) == pytest.approx(0.8, abs=5 * 0.4 / math.sqrt(12 * len(ground)) + 0.005)
    assert np.mean([piece.left for piece in pieces]) == pytest.approx(0.5, abs=0.03)
    jitters = [piece.jitter for piece in pieces] + [scene.background for scene in scenes]
    assert np.mean([jitter.hue for jitter in jitters]) == pytest.approx(0, abs=0.005)
    assert np.mean([jitter.saturation for jitter in jitters]) == pytest.approx(0.95, abs=0.003)


def test_vectors_have_their_areas_and_colors() -> None:
    text = """
        flat #ff0000 oval 20 20 10 6 30
        #00ff00 poly 40 10 60 10 60 30 40 30
        flat ink star 20 50 4 8 5; line 4 40 50 60 50
        flat #0000ff blob 70 10 80 10 80 20 70 20"""
    image = np.asarray(drawings.draw_vectors(text, 90, margin=2, ink=1.5))
    unit = drawings.DETAIL
    assert image.shape == (94 * unit, 94 * unit, 4)

    def area(rgb: str) -> float:
        value = np.array([int(rgb[k : k + 2], 16) for k in (1, 3, 5)])
        return np.count_nonzero((image[..., :3] == value).all(-1) & (image[..., 3] == 255)) / unit**2

    assert area("#ff0000") == pytest.approx(math.pi * 60, rel=0.03)
    assert area("#00ff00") == pytest.approx(400, rel=0.03)
    star = 5 * 4 * 8 * math.sin(math.pi / 5)
    line = 4 * 20 + 2**2 * math.pi
    outline = 1.5 * (4 * 20) + 1.5**2 * math.pi
    assert area(drawings.INK) == pytest.approx(star + line + outline, rel=0.03)
    assert 100 < area("#0000ff") < 160
    assert image[22 * unit, 22 * unit].tolist() == [255, 0, 0, 255]


jitters = st.builds(Jitter, st.floats(-0.1, 0.1), st.floats(0.9, 1), st.floats(0.9, 1))
names = st.sampled_from([kind.name for kind in KINDS])
any_piece = st.builds(Piece, names, st.floats(0, 1), st.floats(0, 1), st.floats(0.75, 1), jitters)


@given(st.builds(ClipartScene, st.lists(any_piece, max_size=6).map(tuple), jitters))
def test_json_round_trip(scene: ClipartScene) -> None:
    assert ClipartScene.from_dict(json.loads(json.dumps(scene.to_dict()))) == scene


PIECE = {"kind": "cat", "left": 0.5, "bottom": 1, "size": 1, "jitter": {"hue": 0, "saturation": 1, "value": 1}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": 3}, "pieces[0].kind: expected a name"),
        ({"left": 1.2}, "pieces[0].left: expected a number in [0, 1]"),
        ({"bottom": "low"}, "pieces[0].bottom"),
        ({"size": 0}, "pieces[0].size"),
        ({"size": float("nan")}, "pieces[0].size"),
        ({"jitter": None}, "pieces[0].jitter: expected a JSON object"),
        ({"colour": "red"}, "pieces[0]: unknown field 'colour'; known are kind, "),
        ({"jitter": {"hue": 0}}, "pieces[0].jitter: `saturation` is missing"),
        ({"jitter": {"hue": 5, "saturation": 1, "value": 1}}, "pieces[0].jitter.hue"),
    ],
)
def test_bad_pieces_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        ClipartScene.from_dict({"pieces": [{**PIECE, **change}], "background": PIECE["jitter"]})
    assert message in str(caught.value)


def test_scenes_that_cannot_be_painted_are_refused() -> None:
    for piece, message in [
        (Piece("unicorn", 0.5, 0.9, 0.9, CALM), "'unicorn' is none of bear, cat"),
        (Piece("cat", 0.5, 0.2, 1.0, CALM), "cut by the upper border"),
    ]:
        with pytest.raises(UserError, match=message):
            WORLD.render([ClipartScene((piece,), CALM)], 4)
    with pytest.raises(UserError, match="none of train"):
        WORLD.slots("")


def make_folder(folder: Path) -> Path:
    """Ten discs and rings in the sizes and under the names of the real art."""
    folder.mkdir()
    for k, kind in enumerate(KINDS):
        side = 70 if kind.home == "ground" else 120
        image = Image.new("RGBA", (side + 20, side + 10))
        ImageDraw.Draw(image).ellipse((10, 5, 9 + side, 4 + side), (25 * k, 200, 100, 255))
        image.save(folder / kind.file)
    Image.new("RGB", (500, 400), (100, 150, 200)).save(folder / "background.png")
    return folder


def test_clip_art_from_a_folder(tmp_path: Path) -> None:
    world = ClipartWorld(folder=make_folder(tmp_path / "Pngs"))
    sides = []
    for index in range(12):
        scene = world.sample(0, "train", index)
        pictures = world.render([scene], 4)
        base = {kind.name: kind.base for kind in KINDS}
        for k, piece in enumerate(scene.pieces):
            area = pictures.shapes[0, 0, k].sum(dtype=int) / 255
            side = base[piece.kind] * piece.size * (70 if HOME[piece.kind] == "ground" else 120)
            sides.append(area / (math.pi / 4 * side**2))
        image = world.render([ClipartScene((), CALM)], 4).image
        assert (image == (100, 150, 200)).all()
    np.testing.assert_allclose(sides, 1, atol=0.12)


def listing(**change: object) -> dict[str, list[dict[str, object]]]:
    pieces: list[dict[str, object]] = [
        {"name": f"thing {k}", "file": kind.file, "home": kind.home, "base": kind.base} for k, kind in enumerate(KINDS)
    ]
    pieces[5]["last"] = True
    pieces[0].update(change)
    return {"pieces": pieces}


def test_a_listing_beside_the_art(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "art")
    (folder / "clipart.json").write_text(json.dumps(listing(name="owl")))
    world = ClipartWorld(folder=str(folder))
    scenes = [world.sample(0, "test2", index) for index in range(30)]
    kinds = {piece.kind for scene in scenes for piece in scene.pieces}
    assert kinds == {"owl", *(f"thing {k}" for k in range(1, 10))}
    order = world.render(scenes, 6).depth_order[:, 0]
    for s, scene in enumerate(scenes):
        for k, piece in enumerate(scene.pieces):
            assert piece.kind != "thing 5" or order[s, k] == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not readable as JSON"),
        ("[]", "expected a JSON object"),
        (json.dumps({"pieces": []}), "expected a list of 10 to 10"),
        (json.dumps(listing(file="../a_0s.png")), "`file` without a folder"),
        (json.dumps(listing(home="sea")), "home: expected ground or sky"),
        (json.dumps(listing(home="sky")), "five of ground and five of sky"),
        (json.dumps(listing(name="thing 1")), "ten different names"),
        (json.dumps(listing(base=-1)), "base: expected a number"),
        (json.dumps(listing(base=2)), "140 x 140 pixels at size 1, more than"),
        (json.dumps(listing(file="none.png")), "none.png: no such file"),
    ],
)
def test_bad_listings_are_refused(tmp_path: Path, content: str, message: str) -> None:
    folder = make_folder(tmp_path / "art")
    (folder / "clipart.json").write_text(content)
    with pytest.raises(UserError) as caught:
        ClipartWorld(folder=folder)
    assert message in str(caught.value)


def test_bad_pictures_are_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "art")
    path = folder / KINDS[2].file
    good = path.read_bytes()
    for content, message in [
        (b"GIF89a", "not a readable PNG"),
        (good[: len(good) // 2], "not a readable PNG"),
        (b"", "not a readable PNG"),
    ]:
        path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            ClipartWorld(folder=folder)
    Image.new("RGBA", (50, 50)).save(path)
    with pytest.raises(UserError, match="no visible pixel"):
        ClipartWorld(folder=folder)
    Image.new("RGBA", (2049, 1)).save(path)
    with pytest.raises(UserError, match="more than 2048 pixels"):
        ClipartWorld(folder=folder)
    with pytest.raises(UserError, match="no such file"):
        ClipartWorld(folder=tmp_path / "nowhere")


def test_art_that_hides_everything_is_refused() -> None:
    mask = np.ones((4, 4), bool)
    with pytest.raises(UserError, match="2 objects find no place"):
        layers.place(2, len, lambda _: mask, lambda items: [float(k) for k, _ in enumerate(items)])
