"""Whole pictures: against Blender, a slow tracer and themselves, and what their pixels depend on."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import binary_dilation, binary_erosion
from slow_tracer import Array, blackman_harris, enter, pixel_rays, some_body

from viewslots.errors import UserError
from viewslots.scenes.clevr import render
from viewslots.scenes.clevr.family import CLEVR_M, ClevrWorld
from viewslots.scenes.clevr.render import render_views
from viewslots.scenes.clevr.spec import Lights, Picture, Scene
from viewslots.scenes.world import SOLID_KEYS
from viewslots.types import Pictures

FOLDER = Path(__file__).parents[1] / "data" / "blender_refs"
BASE = (7.48113, -6.50764, 5.34367)

# --- Against Blender --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fidelity:
    """How a picture differs from Blender's, in levels of 255 and shares."""

    all_pixels: float
    object_pixels: float
    segment: float
    shapes: tuple[float, ...]
    """Soft IoU of each object that has at least one pixel of alpha."""
    bias: float


LIMITS = {
    # All pixels, object pixels: about a fifth above what each reference shows.
    "ref_00": (1.1, 3.9),
    "ref_01": (1.4, 3.2),
    "ref_04": (2.4, 3.5),
    "ref_05": (1.65, 2.4),
    "ref_08": (2.7, 6.5),
    "ref_09": (2.4, 6.2),
    "ref_12": (1.15, 2.8),
    "ref_13": (1.05, 3.4),
    "ref_16": (1.7, 2.9),
    "ref_17": (1.5, 2.7),
}


def srgb8(linear: Array) -> Array:
    linear = np.clip(linear.astype(np.float64), 0, 1)
    return np.round(255 * np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055))


def compare(name: str) -> Fidelity:
    scene = Scene.load(FOLDER / f"{name}.json")
    truth = np.load(FOLDER / f"{name}.npz")
    pictures, _ = render_views([scene], len(scene.objects))
    error = pictures.image[0, 0].astype(np.float64) - srgb8(truth["linear"])
    pairs = zip(pictures.shapes[0, 0].astype(np.float64), truth["amodal"].astype(np.float64), strict=True)
    ious = [np.minimum(a, b).sum() / np.maximum(a, b).sum() for a, b in pairs if b.sum() >= 255]
    on_object = truth["segment"] != 255
    return Fidelity(
        np.abs(error).mean(),
        np.abs(error)[on_object].mean(),
        (pictures.segment[0, 0] == truth["segment"]).mean(),
        tuple(ious),
        error.mean(),
    )


@pytest.fixture(scope="module")
def fidelity() -> dict[str, Fidelity]:
    return {name: compare(name) for name in LIMITS}


def test_pictures_are_those_of_blender_on_average(fidelity: dict[str, Fidelity]) -> None:
    found = list(fidelity.values())
    assert len(found) == 10
    assert np.mean([one.all_pixels for one in found]) <= 2.5
    assert np.mean([one.object_pixels for one in found]) <= 7
    assert np.mean([one.segment for one in found]) >= 0.99
    assert np.mean([iou for one in found for iou in one.shapes]) >= 0.98
    assert abs(np.mean([one.bias for one in found])) < 0.6


@pytest.mark.parametrize("name", LIMITS)
def test_each_reference(name: str, fidelity: dict[str, Fidelity]) -> None:
    one = fidelity[name]
    all_pixels, object_pixels = LIMITS[name]
    assert one.all_pixels <= all_pixels
    assert one.object_pixels <= object_pixels
    assert one.segment >= 0.996
    assert min(one.shapes) >= 0.975
    assert np.mean(one.shapes) >= 0.983


def test_reference_quality_comes_closer_to_blender() -> None:
    """A crop of two references over their objects, at both qualities: less noise, the same picture otherwise."""
    errors = {"fast": [], "reference": []}
    for name in ("ref_04", "ref_13"):
        scene = Scene.load(FOLDER / f"{name}.json")
        segment = np.load(FOLDER / f"{name}.npz")["segment"]
        rows, columns = np.nonzero(segment != 255)
        up, left = int(np.median(rows)) - 8, int(np.median(columns)) - 8
        window = Picture(108, 80, 10 + up, 26 + up, 22 + left, 38 + left)
        truth = srgb8(np.load(FOLDER / f"{name}.npz")["linear"][up : up + 16, left : left + 16])
        for quality, found in errors.items():
            image = render_views([replace(scene, picture=window)], len(scene.objects), quality=quality)[0].image[0, 0]
            found.append(np.abs(image - truth)[segment[up : up + 16, left : left + 16] != 255].mean())
    assert np.mean(errors["reference"]) < 5
    assert np.mean(errors["reference"]) < 0.9 * np.mean(errors["fast"])


# --- Against a slow tracer --------------------------------------------------------------------------------------------

CROWD = (
    some_body("cube", 0.7, (-0.6, 0.7), rotation=0.4),
    some_body("cylinder", 0.35, (0.1, 0.1), rotation=0.0, material="metal"),
    some_body("sphere", 0.7, (0.9, -0.9), rotation=0.0),
    some_body("cube", 0.35, (1.9, 0.2), rotation=1.0, material="metal", rgb=(0.2, 0.3, 0.8)),
)
"""One behind the other before the base camera."""
SMALL = Picture(108, 80, up=24, down=44, left=40, right=68)
SLOW = Scene(CROWD, (BASE,), picture=SMALL)


@pytest.fixture(scope="module")
def slow_shares() -> tuple[Array, Array]:
    """[4, H, W] share of each pixel that each complete body covers, and in which it is the nearest."""
    height, width = SMALL.height, SMALL.width
    # About 45 points a pixel, evenly and along no line (Roberts' R2), the filter's reach around the window included.
    index = np.arange(45 * (height + 3) * (width + 3))
    x = (0.7548776662466927 * index % 1) * (width + 3) - 1.5
    y = (0.5698402909980532 * index % 1) * (height + 3) - 1.5
    direction = pixel_rays(BASE, SMALL, x, y)
    entries = np.stack([enter(body, np.array(BASE), direction)[0] for body in CROWD])
    covers = entries < np.inf
    nearest = (entries == entries.min(0)) & covers
    down, across = (blackman_harris(z[:, None] - np.arange(n) - 0.5) for z, n in ((y, height), (x, width)))
    total = down.T @ across
    covered, seen = (
        np.stack([(down * mask[:, None]).T @ across / total for mask in masks]) for masks in (covers, nearest)
    )
    return covered, seen


@pytest.mark.parametrize(("quality", "tolerance"), [("fast", 0.11), ("reference", 0.04)])
def test_shapes_and_segment_are_those_of_a_slow_tracer(
    quality: str, tolerance: float, slow_shares: tuple[Array, Array]
) -> None:
    shapes, visible = slow_shares
    pictures, _ = render_views([SLOW], 4, quality=quality)
    error = np.abs(pictures.shapes[0, 0] / 255 - shapes)
    assert error.max() < tolerance
    assert error.mean() < tolerance / 20
    total, best = visible.sum(0), visible.argmax(0)
    ranked = np.sort(visible, 0)
    sure = (np.abs(total - 0.5) > tolerance) & ((ranked[-1] - ranked[-2] > 2 * tolerance) | (total < 0.5))
    assert sure.mean() > 0.8
    expected = np.where(total >= 0.5, best, 255)
    np.testing.assert_array_equal(pictures.segment[0, 0][sure], expected[sure])
    # The small cylinder stands out of sight behind the sphere, and its shape is known.
    assert set(np.unique(pictures.segment)) == {0, 2, 3, 255}
    assert visible[1].max() < 0.5
    assert pictures.shapes[0, 0, 1].max() == 255


def test_ground_hides_what_lies_beneath_it() -> None:
    """A sphere sunk to its middle is seen above the ground alone; a buried one keeps its shape and is not seen."""
    sunk = replace(some_body("sphere"), location=(0.0, 0.0, 0.0))
    buried = replace(some_body("cube"), location=(1.5, 1.5, -1.2))
    window = replace(SMALL, down=52)
    pictures, _ = render_views([Scene((sunk, buried), (BASE,), picture=window)], 2)
    x, y = np.meshgrid(np.arange(window.width) + 0.5, np.arange(window.height) + 0.5)
    direction = pixel_rays(BASE, window, x, y)
    seen = enter(sunk, np.array(BASE), direction)[0] < -BASE[2] / direction[..., 2]
    # Pixel centres against filtered edges: all but the rim.
    rim = binary_dilation(seen) & ~binary_erosion(seen)
    np.testing.assert_array_equal((pictures.segment[0, 0] == 0)[~rim], seen[~rim])
    assert (pictures.shapes[0, 0, 0] >= 128).sum() > 1.2 * seen.sum()
    assert (pictures.segment != 1).all()
    assert pictures.shapes[0, 0, 1].max() > 128


# --- Truth against itself ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    """Few and many objects, narrow and wide views."""
    drawn = [CLEVR_M["clevr-m1"].sample(2, "train", 1), CLEVR_M["clevr-m3"].sample(2, "test2", 0)]
    return [replace(scene, cameras=scene.cameras[:2]) for scene in drawn]


@pytest.fixture(scope="module")
def pictures(scenes: list[Scene]) -> Pictures:
    return render_views(scenes, 10)[0]


def test_segment_overlap_and_shapes_agree(scenes: list[Scene], pictures: Pictures) -> None:
    for s, scene in enumerate(scenes):
        count = len(scene.objects)
        shapes, segment = pictures.shapes[s].astype(int), pictures.segment[s]
        assert set(np.unique(segment)) <= {*range(count), 255}
        assert len(np.unique(segment)) > 2
        np.testing.assert_array_equal(pictures.overlap[s], (shapes >= 128).sum(1))
        for k in range(count):
            assert (shapes[:, k][segment == k] > 0).all()
        # Where nothing comes near there is ground, and inside a single shape that object is seen.
        assert (segment[shapes.max(1) == 0] == 255).all()
        lonely = (shapes.max(1) == 255) & ((shapes > 0).sum(1) == 1)
        np.testing.assert_array_equal(segment[lonely], shapes.argmax(1)[lonely])
        assert lonely.sum() > 100
        assert not shapes[:, count:].any()
        assert not pictures.shadows[s, :, count:].any()


def test_nearer_objects_hide_farther_ones(scenes: list[Scene], pictures: Pictures) -> None:
    """Bodies keep their distance, so where two complete shapes cover a pixel the one whose centre is nearer is seen."""
    checked = 0
    for s, scene in enumerate(scenes):
        for m, camera in enumerate(scene.cameras):
            distance = [np.linalg.norm(np.array(body.location) - camera) for body in scene.objects]
            both = (pictures.shapes[s, m] == 255).sum(0) == 2
            for row, column in np.argwhere(both):
                inside = np.flatnonzero(pictures.shapes[s, m, :, row, column] == 255)
                others = pictures.shapes[s, m, :, row, column] > 0
                if others.sum() == 2 and abs(distance[inside[0]] - distance[inside[1]]) > 0.5:
                    assert pictures.segment[s, m, row, column] == min(inside, key=lambda k: distance[k])
                    checked += 1
    assert checked > 20


def test_depth_order_is_minus_the_distance(scenes: list[Scene], pictures: Pictures) -> None:
    for s, scene in enumerate(scenes):
        count = len(scene.objects)
        for m, camera in enumerate(scene.cameras):
            distance = [np.linalg.norm(np.array(body.location) - camera) for body in scene.objects]
            np.testing.assert_allclose(pictures.depth_order[s, m, :count], -np.array(distance), rtol=1e-6)
            assert (pictures.depth_order[s, m, count:] == -np.inf).all()


def test_cameras_and_counts_are_those_of_the_scene(scenes: list[Scene], pictures: Pictures) -> None:
    np.testing.assert_allclose(pictures.camera, [scene.cameras for scene in scenes], rtol=1e-6)
    assert pictures.num_objects.tolist() == [len(scene.objects) for scene in scenes]


def test_shape_and_shadow_are_those_of_the_object_alone(scenes: list[Scene], pictures: Pictures) -> None:
    """Bit for bit, hidden or not; a shadow is defined for its object alone."""
    scene = scenes[1]
    out_of_sight = ((pictures.shapes[1] >= 128) & (pictures.segment[1][:, None] != np.arange(10)[:, None, None])).sum(
        (0, 2, 3)
    )
    hidden = 0
    for k in (*np.argsort(out_of_sight)[-2:], 0):
        alone = render_views([replace(scene, objects=(scene.objects[k],))], 1)[0]
        np.testing.assert_array_equal(pictures.shapes[1, :, k], alone.shapes[0, :, 0])
        np.testing.assert_array_equal(pictures.shadows[1, :, k], alone.shadows[0, :, 0])
        np.testing.assert_array_equal(pictures.depth_order[1, :, k], alone.depth_order[0, :, 0])
        assert alone.shadows.max() > 100
        hidden += int(((alone.segment[0] == 0) & (pictures.segment[1] != k)).sum())
    assert hidden > 10


def test_shadows_fall_away_from_the_lamps() -> None:
    """With all lamps on one side, ground between them and the body is free and ground beyond it dark."""
    lights = Lights(key=(6.0, 0.0, 5.0), fill=(6.5, 0.3, 5.0), back=(6.2, -0.3, 5.0))
    scene = Scene((some_body("sphere", 0.7),), ((0.0, -9.0, 7.0),), lights=lights)
    shadow = render_views([scene], 1)[0].shadows[0, 0, 0].astype(int)
    focal, distance = scene.picture.focal, np.linalg.norm(scene.cameras[0])
    # The origin lies at column 32, row 30 of the window; x runs to the right.
    step = focal / distance
    beyond, before = (shadow[30, round(32 + x * step)] for x in (-0.9, 1.6))
    assert beyond > 200
    assert before == 0


# --- What the pixels depend on ----------------------------------------------------------------------------------------


KEYS = SOLID_KEYS


def assert_same(one: Pictures, two: Pictures, keys: Sequence[str] = KEYS) -> None:
    for key in keys:
        np.testing.assert_array_equal(getattr(one, key), getattr(two, key), err_msg=key)


def part(pictures: Pictures, rows: Sequence[int]) -> Pictures:
    return Pictures(**{key: getattr(pictures, key)[list(rows)] for key in KEYS})


TINY = Picture(108, 80, up=34, down=50, left=44, right=66)


@pytest.fixture(scope="module")
def tiny() -> list[Scene]:
    """Scenes with few and many objects on a small window."""
    drawn = [CLEVR_M["clevr-m2"].sample(3, "train", index) for index in range(2)] + [
        CLEVR_M["clevr-m3"].sample(3, "test2", index) for index in range(2)
    ]
    return [replace(scene, cameras=scene.cameras[:3], picture=TINY) for scene in drawn]


def test_pixels_do_not_depend_on_the_batch(tiny: list[Scene]) -> None:
    together = render_views(tiny, 10)[0]
    for index, scene in enumerate(tiny):
        assert_same(render_views([scene], 10)[0], part(together, [index]))
    order = [2, 0, 3, 1]
    assert_same(render_views([tiny[k] for k in order], 10)[0], part(together, order))


def test_linear_light_does_not_depend_on_the_batch_either(tiny: list[Scene]) -> None:
    together = render_views(tiny[:2], 10)[1]
    np.testing.assert_array_equal(together[1:], render_views(tiny[1:2], 10)[1])


@pytest.mark.parametrize("rows", [1, 3, 11, 16, 40])
def test_pixels_do_not_depend_on_bands(rows: int, tiny: list[Scene], monkeypatch: pytest.MonkeyPatch) -> None:
    """Bands of a row, of some rows (the last one shorter), whole views one by one, and several at once."""
    chosen = [replace(tiny[3], cameras=tiny[3].cameras[:2])]
    whole = render_views(chosen, 10)[0]
    heights, views, expose = [], [], render.expose

    def watched(stage, cameras, keys, picture, quality) -> render.Film:
        heights.append(picture.height)
        views.append(len(keys))
        return expose(stage, cameras, keys, picture, quality)

    monkeypatch.setattr(render, "expose", watched)
    pairs = rows * TINY.width * render.QUALITIES["fast"].samples * 10
    monkeypatch.setattr(render, "PAIRS_ON_CPU", pairs)
    assert_same(render_views(chosen, 10)[0], whole)
    assert max(heights) == min(rows, 16)
    assert max(views) == (2 if rows == 40 else 1)
    assert sum(height * count for height, count in zip(heights, views, strict=True)) == 2 * 16


def test_pixels_do_not_depend_on_threads(tiny: list[Scene], monkeypatch: pytest.MonkeyPatch) -> None:
    """And a render leaves the number of threads as it was."""
    monkeypatch.setattr(render, "PAIRS_ON_CPU", 5 * TINY.width * render.QUALITIES["fast"].samples * 10)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(render_views(tiny[2:], 10)[0])
            assert torch.get_num_threads() == threads
            with ThreadPoolExecutor(1) as later:
                assert later.submit(torch.get_num_threads).result() == threads
    finally:
        torch.set_num_threads(before)
    assert_same(*found)


def test_pixels_do_not_depend_on_the_window(tiny: list[Scene]) -> None:
    large = render_views(tiny[:1], 6)[0]
    inner = replace(TINY, up=TINY.up + 3, down=TINY.down - 5, left=TINY.left + 7, right=TINY.right - 2)
    small = render_views([replace(tiny[0], picture=inner)], 6)[0]
    np.testing.assert_array_equal(small.image, large.image[:, :, 3:-5, 7:-2])
    for key in ("segment", "overlap", "shapes", "shadows"):
        np.testing.assert_array_equal(getattr(small, key), getattr(large, key)[..., 3:-5, 7:-2], err_msg=key)


def test_pixels_do_not_depend_on_spare_slots(tiny: list[Scene]) -> None:
    exact, roomy = (render_views(tiny[:1], slots)[0] for slots in (len(tiny[0].objects), 13))
    assert_same(exact.padded(13), roomy)


def test_first_views_do_not_depend_on_later_ones(tiny: list[Scene]) -> None:
    full, first = (render_views([replace(tiny[0], cameras=tiny[0].cameras[:n])], 6)[0] for n in (3, 1))
    for key in ("image", "segment", "overlap", "shapes", "shadows", "depth_order", "camera"):
        np.testing.assert_array_equal(getattr(full, key)[:, :1], getattr(first, key), err_msg=key)


TRUTH = ("segment", "overlap", "shapes", "depth_order", "camera", "num_objects")


def test_noise_changes_with_the_key_and_nothing_else_does(scenes: list[Scene], pictures: Pictures) -> None:
    scene = scenes[0]
    other = render_views([replace(scene, key=scene.key ^ 1)], 10)[0]
    same = part(pictures, [0])
    assert_same(other, same, TRUTH)
    change = np.abs(other.image.astype(int) - same.image)
    assert 0.05 < change.mean() < 3
    # Far from objects and shadows only the sampled lamp points differ: a level or two.
    busy = np.maximum(np.maximum(same.shapes, same.shadows), other.shadows).max(2) > 0
    empty = ~np.stack([binary_dilation(view, iterations=6) for view in busy[0]])
    assert empty.sum() > 100
    assert (change[0][empty] <= 3).mean() > 0.99
    assert change[0][empty].max() <= 10
    # Shadows are noisy in penumbras alone: neither where no lamp is hidden nor where the change would be a bias.
    shadow = other.shadows.astype(int) - same.shadows
    assert np.abs(shadow).max() > 3
    assert abs(shadow.mean()) < 0.1
    solid = (same.shadows == 255) & (other.shadows == 255)
    assert solid.any()


def test_every_view_has_noise_of_its_own(scenes: list[Scene]) -> None:
    scene = replace(scenes[0], cameras=scenes[0].cameras[:1] * 2, picture=TINY)
    twice = render_views([scene], 6)[0]
    for key in ("segment", "shapes", "depth_order"):
        np.testing.assert_array_equal(getattr(twice, key)[0, 0], getattr(twice, key)[0, 1])
    assert (twice.image[0, 0] != twice.image[0, 1]).mean() > 0.02


def test_noise_is_independent_from_pixel_to_pixel() -> None:
    """Differences of two noises on bare ground: neighbours share samples by the filter, pixels farther off nothing."""
    window = Picture(108, 80, up=20, down=60, left=30, right=70)
    linear = render_views([Scene((), (BASE,) * 2, picture=window)], 1)[1].astype(np.float64)
    change = linear[0, 0, ..., 1] - linear[0, 1, ..., 1]
    change -= change.mean()
    for rows, columns in ((0, 4), (4, 0), (3, 5), (0, 9)):
        product = change[: 40 - rows, : 40 - columns] * change[rows:, columns:]
        assert abs(product.mean()) < 0.15 * (change**2).mean()
    assert change.std() > 0


def test_repeating_a_render_repeats_its_bits(tiny: list[Scene]) -> None:
    assert_same(render_views(tiny[:1], 6)[0], render_views(tiny[:1], 6)[0])


def bare_ground(slots: int) -> Pictures:
    return render_views([Scene((), (BASE,), picture=TINY)], slots)[0]


def test_a_scene_without_objects_is_bare_ground() -> None:
    found = bare_ground(2)
    assert (found.segment == 255).all()
    assert not found.shapes.any()
    assert not found.shadows.any()
    assert (found.depth_order == -np.inf).all()
    assert np.ptp(found.image[..., 1].astype(int)) < 20
    assert found.image.min() > 60


def test_a_scene_without_objects_needs_no_slots() -> None:
    assert_same(bare_ground(0).padded(2), bare_ground(2))


def test_scenes_of_different_kinds_are_not_rendered_together(tiny: list[Scene]) -> None:
    for other in (
        replace(tiny[1], picture=replace(TINY, up=30)),
        replace(tiny[1], cameras=tiny[1].cameras[:2]),
        replace(tiny[1], backdrop="sweep"),
    ):
        with pytest.raises(UserError, match="share"):
            render_views([tiny[0], other], 10)
    with pytest.raises(UserError, match="slots"):
        render_views(tiny[2:3], 6)


def test_pixels_do_not_depend_on_the_precision_around_them(tiny: list[Scene]) -> None:
    """A training loop may have chosen fast products and lower precision for itself."""
    expected = render_views(tiny[:1], 6)[0]
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = render_views(tiny[:1], 6)[0]
    finally:
        torch.set_float32_matmul_precision(before)
    assert_same(found, expected)


def test_beyond_the_horizon_all_is_black() -> None:
    """A low camera: the upper half of the picture sees no ground, and no shadow on it."""
    body = some_body("sphere", 0.7)
    scene = Scene((body,), ((9.0, 0.0, 0.5),), picture=Picture(108, 80, up=0, down=60, left=40, right=68))
    pictures, _ = render_views([scene], 1)
    # The horizon of a camera that looks at the origin lies above the middle by the slope of its gaze.
    horizon = 40 - scene.picture.focal * 0.5 / 9
    sky = np.arange(60) < horizon - 2
    empty = ~binary_dilation(pictures.shapes[0, 0, 0] > 0) & sky[:, None]
    assert empty.sum() > 300
    assert not pictures.image[0, 0][empty].any()
    assert not pictures.shadows[0, 0, 0, sky].any()
    assert (pictures.image[0, 0, 45:, :4] > 30).all()


def test_worlds_render_what_render_views_does(tiny: list[Scene]) -> None:
    assert_same(CLEVR_M["clevr-m1"].render(tiny[:1], 10), render_views(tiny[:1], 10)[0])
    single = ClevrWorld().sample(0, "train", 0)
    single = replace(single, picture=replace(single.picture, up=60, down=70, left=90, right=110))
    assert_same(ClevrWorld().render([single], 6), render_views([single], 6)[0])


def test_the_sweep_is_lit_and_far(tiny: list[Scene]) -> None:
    """Before the sweep the upper border of the picture shows a bent sheet, brighter than the plane far out; near the
    objects nothing changes but the noise of light."""
    scene = ClevrWorld().sample(0, "train", 0)
    top = replace(scene.picture, up=19, down=25, left=100, right=112)
    flat, bent = (render_views([replace(scene, picture=top, backdrop=b)], 6)[0] for b in ("plane", "sweep"))
    assert bent.image.mean() > flat.image.mean() + 1
    low = replace(scene.picture, up=120, down=126, left=100, right=112)
    flat, bent = (render_views([replace(scene, picture=low, backdrop=b)], 6)[0] for b in ("plane", "sweep"))
    for key in ("segment", "shapes", "shadows"):
        np.testing.assert_array_equal(getattr(flat, key), getattr(bent, key))
    assert np.abs(flat.image.astype(int) - bent.image).mean() < 1
