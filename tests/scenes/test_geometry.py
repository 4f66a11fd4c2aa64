"""Rays against bodies: the fast float32 code against float64 oracles that know only what a body is."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from slow_tracer import Array, enter, gap, outward, unit

from viewslots.scenes.clevr.geometry import Bodies, intersect, normals
from viewslots.scenes.clevr.spec import Scene, SceneObject
from viewslots.scenes.vectors import Vec

SHAPES = ("sphere", "cube", "cylinder")
TOUCH = 1e-3
"""Of a body's half-extent: a ray that passes this close may count as a hit, a surface may lie this far off."""
CAMERA = (7.0, -6.0, 5.0)


def body(shape: str, radius: float, location: Sequence[float], rotation: float) -> SceneObject:
    x, y, z = location
    return SceneObject(shape, radius, (0.5, 0.5, 0.5), "rubber", (x, y, z), rotation)  # type: ignore[arg-type]


ZOO = (
    Scene((body("sphere", 0.7, (0, 0, 0.7), 0.0), body("cube", 0.35, (2, 1, 0.35), 0.3)), (CAMERA,)),
    Scene(
        (
            body("cube", 0.7, (-1, 0.5, 0.7), 2.2),
            body("cylinder", 0.7, (1.5, 2, 0.7), 0.0),
            body("sphere", 2.5, (-6, 3, 1.0), 1.0),
            body("cube", 1.3, (3, -4, 5.0), 0.0),
        ),
        (CAMERA,),
    ),
    Scene((body("cylinder", 0.35, (2.5, -2, 0.35), 4.0), body("cylinder", 3.0, (0, 6, -1.0), 1.5)), (CAMERA,)),
)
SLOTS = 5
"""One more than any scene has: the last is padding everywhere."""


@pytest.fixture(scope="module")
def bodies() -> Bodies:
    return Bodies.of(list(ZOO), SLOTS, "cpu")


def vec(rows: Array) -> Vec:
    return Vec(*torch.from_numpy(np.asarray(rows, np.float32)).unbind(-1))


def aimed(thing: SceneObject, count: int, seed: int) -> tuple[Array, Array]:
    """From all sides at the body and past it."""
    random = np.random.default_rng(seed)
    center = np.array(thing.location)
    origin = center + unit(random.normal(size=(count, 3))) * random.uniform(2, 14, (count, 1)) * thing.radius
    target = center + unit(random.normal(size=(count, 3))) * random.uniform(0, 1.8, (count, 1)) * thing.radius
    return origin, unit(target - origin)


def grazing(thing: SceneObject, count: int, seed: int) -> tuple[Array, Array]:
    """Almost tangent to the surface, on both sides of it."""
    random = np.random.default_rng(seed)
    origin, direction = aimed(thing, 4 * count, seed)
    distance, _ = enter(thing, origin, direction)
    hit = np.flatnonzero(distance < np.inf)[:count]
    point = origin[hit] + distance[hit, None] * direction[hit]
    normal = outward(thing, point)
    tangent = unit(np.cross(normal, random.normal(size=normal.shape)))
    direction = unit(tangent + random.uniform(-0.03, 0.03, (len(hit), 1)) * normal)
    return point - direction * random.uniform(3, 12, (len(hit), 1)) * thing.radius, direction


def upright(thing: SceneObject, count: int, seed: int) -> tuple[Array, Array]:
    """Along the axes, with exact zeros in the direction."""
    random = np.random.default_rng(seed)
    direction = np.eye(3)[random.integers(3, size=count)] * random.choice([-1.0, 1.0], (count, 1))
    aside = random.uniform(-1.2, 1.2, (count, 3)) * thing.radius * (direction == 0)
    return np.array(thing.location) + aside - 4 * thing.radius * direction, direction


def check_against_oracle(found: Array, things: Sequence[SceneObject], origin: Array, direction: Array) -> int:
    """Distances [rays, slots] that `intersect` found against the definition; returns the number of hits seen."""
    hits = 0
    for slot, thing in enumerate(things):
        # Starts next to another body have a test of their own.
        far = np.linalg.norm(origin - np.array(thing.location), axis=-1) > 1.7 * thing.radius
        begin, way, distance = origin[far], direction[far], found[far, slot]
        expected, least = enter(thing, begin, way)
        hit = distance < np.inf
        touch = (1e-5 if thing.shape == "sphere" else TOUCH) * thing.radius
        assert not (hit & (least > touch)).any(), f"{thing}: a hit where the ray passes by"
        assert not (~hit & (least < -1e-4 * thing.radius)).any(), f"{thing}: missed a ray that goes through"
        point = begin[hit] + distance[hit, None] * way[hit]
        assert np.abs(gap(thing, point)).max(initial=0) < touch, f"{thing}: a hit off the surface"
        both = hit & (expected < np.inf)
        point = begin[both] + expected[both, None] * way[both]
        steep = -(outward(thing, point) * way[both]).sum(-1)
        error = np.abs(distance[both] - expected[both])
        # Where the ray meets the surface at an angle, an offset of the surface is one along the ray, over its cosine.
        clear = steep > 0.15
        assert (error[clear] * steep[clear]).max(initial=0) < touch, f"{thing}: a wrong distance"
        hits += int(both.sum())
    assert (found[:, len(things) :] == np.inf).all(), "padding was hit"
    return hits


@pytest.mark.parametrize("family", [aimed, grazing, upright])
@pytest.mark.parametrize("row", range(len(ZOO)))
def test_entry_is_that_of_the_definition(bodies: Bodies, family, row: int) -> None:
    things = ZOO[row].objects
    rays = [family(thing, 300, seed=10 * row + k) for k, thing in enumerate(things)]
    # Rays as float32 first, so that both see the same ones.
    origin, direction = (np.concatenate(part).astype(np.float32) for part in zip(*rays, strict=True))
    view = torch.full((len(origin),), row)
    found = intersect(bodies, view, vec(origin), vec(direction)).double().numpy()
    hits = check_against_oracle(found, things, origin.astype(np.float64), direction.astype(np.float64))
    assert hits > 0.2 * 300 * len(things)


def test_sphere_is_the_root_of_its_quadratic() -> None:
    thing = body("sphere", 0.7, (0.3, -0.2, 0.7), 0.4)
    table = Bodies.of([Scene((thing,), (CAMERA,))], 1, "cpu")
    origin, direction = aimed(thing, 400, seed=5)
    found = intersect(table, torch.zeros(400, dtype=torch.long), vec(origin), vec(direction))[:, 0]
    for start, way, distance in zip(origin.tolist(), direction.tolist(), found.tolist(), strict=True):
        path = [a - b for a, b in zip(start, thing.location, strict=True)]
        b = sum(p * w for p, w in zip(path, way, strict=True))
        c = sum(p * p for p in path) - 0.7**2
        if abs(b * b - c) < 1e-4:  # within a micrometre of the rim: either answer
            continue
        assert distance == pytest.approx(-b - math.sqrt(b * b - c) if b * b > c else math.inf, abs=1e-4)


def test_bodies_behind_the_start_are_not_seen(bodies: Bodies) -> None:
    for row, scene in enumerate(ZOO):
        for k, thing in enumerate(scene.objects):
            origin, direction = aimed(thing, 200, seed=k)
            found = intersect(bodies, torch.full((200,), row), vec(origin), vec(-direction))
            assert (found[:, k] == torch.inf).all()


def near_misses_and_hits(thing: SceneObject, seed: int) -> tuple[Array, Array, Array]:
    """Rays that start outside the body but within a quarter of its half-extent; their oracle entries."""
    random = np.random.default_rng(seed)
    origin = np.array(thing.location) + random.uniform(-1.4, 1.4, (4000, 3)) * thing.radius
    away = gap(thing, origin) / thing.radius
    origin = origin[(away > 0.02) & (away < 0.25)]
    direction = unit(random.normal(size=origin.shape))
    expected, least = enter(thing, origin, direction)
    sure = np.abs(least) > 2 * TOUCH * thing.radius
    return origin[sure], direction[sure], expected[sure]


@pytest.mark.parametrize("shape", SHAPES)
def test_rays_that_start_close_to_a_body(shape: str) -> None:
    """Shadow rays of the ground beside a cube, bounces between neighbours: they start within the bounding sphere."""
    thing = body(shape, 0.7, (0.4, 0.1, 0.7), 0.6)
    table = Bodies.of([Scene((thing,), (CAMERA,))], 1, "cpu")
    origin, direction, expected = near_misses_and_hits(thing, seed=8)
    view = torch.zeros(len(origin), dtype=torch.long)
    found = intersect(table, view, vec(origin), vec(direction))[:, 0].double().numpy()
    wrong = (found < np.inf) != (expected < np.inf)
    assert not wrong.any(), f"{wrong.sum()} of {len(wrong)} rays"
    hit = found < np.inf
    assert hit.sum() > 100
    assert np.abs(gap(thing, origin[hit] + found[hit, None] * direction[hit])).max() < TOUCH * thing.radius
    # In front of the start, and the way in rather than the way out.
    assert found.min() > 0
    assert (found[hit] < expected[hit] + 0.01).all()


def test_padding_is_never_hit_and_never_nan() -> None:
    """Also by rays that fly straight at the place where padding is kept."""
    table = Bodies.of([ZOO[0]], 4, "cpu")
    origin = np.random.default_rng(0).uniform((-3, -3, 0), (3, 3, 1.4), (500, 3))
    for slot in (2, 3):
        kept = np.array([part[0, slot].item() for part in (table.center.x, table.center.y, table.center.z)])
        found = intersect(table, torch.zeros(500, dtype=torch.long), vec(origin), vec(unit(kept - origin)))
        assert (found[:, 2:] == torch.inf).all()


def test_skip_leaves_out_one_body_and_no_other(bodies: Bodies) -> None:
    origin, direction = map(
        np.concatenate, zip(*(aimed(b, 100, seed=k) for k, b in enumerate(ZOO[1].objects)), strict=True)
    )
    view, count = torch.full((len(origin),), 1), len(origin)
    plain = intersect(bodies, view, vec(origin), vec(direction))
    assert (plain < torch.inf).sum() > 100
    skip = torch.arange(count) % (SLOTS + 1) - 1
    found = intersect(bodies, view, vec(origin), vec(direction), skip=skip)
    for ray in range(count):
        expected = plain[ray].clone()
        if skip[ray] >= 0:
            expected[skip[ray]] = torch.inf
        assert torch.equal(found[ray], expected)


def test_broadcasting_equals_a_loop_over_rays(bodies: Bodies) -> None:
    """Origins a view, directions a view and sample, as the renderer asks: bit for bit what single rays give."""
    random = np.random.default_rng(3)
    start = random.uniform(4, 9, (3, 1, 3))
    target = np.array([scene.objects[1].location for scene in (ZOO[2], ZOO[0], ZOO[1])])[:, None]
    origin, direction = vec(start), vec(unit(target + random.uniform(-0.7, 0.7, (3, 40, 3)) - start))
    view = torch.tensor([2, 0, 1])[:, None]
    skip = torch.tensor([0, -1, 2])[:, None]
    found = intersect(bodies, view, origin, direction, skip)
    assert found.shape == (3, 40, SLOTS)
    assert (found < torch.inf).sum() > 20
    for v in range(3):
        for ray in range(40):
            single = intersect(bodies, view[v], origin[v], direction[v, ray : ray + 1], skip[v])
            assert torch.equal(found[v, ray], single[0])


@pytest.mark.parametrize("shape", SHAPES)
def test_normals_are_the_slope_of_the_distance(shape: str) -> None:
    things = (body(shape, 0.7, (1, 2, 0.7), 0.7), body(shape, 2.0, (-1, 0.5, 3), 5.0))
    table = Bodies.of([Scene(things, (CAMERA,))], 2, "cpu")
    for slot, thing in enumerate(things):
        origin, direction = aimed(thing, 600, seed=slot)
        distance, _ = enter(thing, origin, direction)
        hit = distance < np.inf
        point = origin[hit] + distance[hit, None] * direction[hit]
        expected = outward(thing, point)
        rows = torch.zeros(int(hit.sum()), dtype=torch.long)
        found = normals(table[rows, rows + slot], vec(point))
        found = np.stack([part.numpy() for part in (found.x, found.y, found.z)], -1)
        np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1, atol=1e-6)
        # A rim of radius 0.054 turns by 2e-5 rad for every micrometre that float32 shifts the point.
        assert np.abs(found - expected).max() < 2e-4
