"""The rules of `tabletop`: from a key to a scene.

Objects, surroundings and views are drawn from streams of their own, so that the members of the family share them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from viewslots.scenes.draws import Draws, noise_key
from viewslots.scenes.tabletop.bodies import KINDS, WHOLE, Array, Vec3, parts_of
from viewslots.scenes.tabletop.table_scene import Camera, Finish, Lamp, Room, Table, TableScene, Thing

FAMILY = "tabletop"
AREA = 0.27
"""Radius of the circle in which objects stand, in metres; of seven and more objects a little larger."""
EDGE = 0.02
"""Least distance of an object from the edge of the table."""
GAP = 0.001
"""Least distance between two objects."""
TRIES = 60
SIDE_BY_SIDE = 0.35
"""Share of objects that are put right beside another one."""
STEP = 0.004
LYING = 0.3
"""Share of those that lie, of the kinds that may."""
TEXTURED = 0.5
"""Share of textured objects."""

_ANGLES = np.arange(48) * (2 * math.pi / 48)
DIRECTIONS = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], -1)
OPPOSITE = (np.arange(48) + 24) % 48


def rounded(*values: float) -> Vec3:
    """To a micrometre: hides the last bit of the platform's trigonometry."""
    x, y, z = (round(value, 6) for value in values)
    return x, y, z


# --- Colours and finishes ---------------------------------------------------------------------------------------------


def linear(red: float, green: float, blue: float) -> Vec3:
    """From sRGB in 0..1 to light, at most 0.9 of it."""
    values = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (red, green, blue))
    return rounded(*(0.9 * value for value in values))


def tinted(hue: float, saturation: float, value: float) -> Vec3:
    """Hue in turns; saturation and value in 0..1, of sRGB."""

    def channel(shift: float) -> float:
        place = (shift + 6 * hue) % 6
        return value * (1 - saturation * max(0.0, min(place, 4 - place, 1.0)))

    return linear(channel(5), channel(3), channel(1))


def any_color(draws: Draws) -> Vec3:
    """One in six a grey, else any hue."""
    if draws.uniform(0, 1) < 1 / 6:
        return tinted(0, 0, draws.uniform(0.12, 0.97))
    return tinted(draws.uniform(0, 1), draws.uniform(0.3, 0.95), draws.uniform(0.35, 0.97))


def pale(draws: Draws) -> Vec3:
    return tinted(draws.uniform(0, 1), draws.uniform(0.02, 0.3), draws.uniform(0.62, 0.93))


def brown(draws: Draws, low: float = 0.35, high: float = 0.8) -> Vec3:
    return tinted(draws.uniform(0.05, 0.1), draws.uniform(0.35, 0.65), draws.uniform(low, high))


METALS = ((0.93, 0.92, 0.9), (0.98, 0.84, 0.5), (0.96, 0.7, 0.58), (0.78, 0.79, 0.82), (0.88, 0.76, 0.5))
"""Silver, gold, copper, steel, brass; sRGB."""


def darker(color: Vec3, share: float) -> Vec3:
    return rounded(*(share * value for value in color))


def placed(draws: Draws, finish: Finish, period: tuple[float, float]) -> Finish:
    """A texture somewhere, in some direction."""
    return replace(
        finish,
        period=round(draws.uniform(*period), 6),
        azimuth=round(draws.uniform(0, 2 * math.pi), 6),
        offset=rounded(*(draws.uniform(0, 20) for _ in range(3))),
    )


def textured(draws: Draws, pattern: str, period: tuple[float, float], color: Callable[[Draws], Vec3]) -> Finish:
    """Two colours that differ, in a pattern."""
    first = color(draws)
    if pattern == "wood":
        first = brown(draws)
        second = darker(first, draws.uniform(0.35, 0.65))
    elif pattern == "marble":
        first = tinted(draws.uniform(0, 1), draws.uniform(0, 0.12), draws.choice((0.25, 0.8, 0.93)))
        second = tinted(draws.uniform(0, 1), draws.uniform(0, 0.3), 0.75 if sum(first) < 0.5 else 0.35)
    elif pattern == "noise":
        second = darker(first, draws.uniform(0.3, 0.7))
    else:
        second = other_color(draws, first, color)
    return placed(draws, Finish((first, second), pattern), period)  # type: ignore[arg-type]


def other_color(draws: Draws, first: Vec3, color: Callable[[Draws], Vec3]) -> Vec3:
    """One that can be told from the first."""
    for _ in range(20):
        second = color(draws)
        if max(abs(a - b) for a, b in zip(first, second, strict=True)) > 0.2:
            return second
    return darker(first, 0.4)


def coated(draws: Draws, finish: Finish) -> Finish:
    """Chalk, satin or lacquer."""
    kind = draws.choice(("chalk", "satin", "lacquer"))
    if kind == "chalk":
        return finish
    ior, alpha = (1.45, draws.uniform(0.2, 0.45)) if kind == "satin" else (1.5, draws.uniform(0.02, 0.1))
    return replace(finish, ior=ior, alpha=round(alpha, 6))


def metal(draws: Draws) -> Finish:
    color = linear(*draws.choice(METALS))
    return Finish((color, color), metal=True, alpha=round(draws.uniform(0.06, 0.35), 6))


def object_finish(draws: Draws) -> Finish:
    """One in six a metal; of the others half are textured."""
    if draws.uniform(0, 1) < 1 / 6:
        return metal(draws)
    if draws.uniform(0, 1) < TEXTURED:
        pattern = draws.choice(("stripes", "checks", "dots", "noise", "wood", "marble", "print"))
        finish = textured(draws, pattern, (0.025, 0.06), any_color)
        finish = replace(finish, tilt=round(draws.uniform(0, math.pi), 6))
    else:
        color = any_color(draws)
        finish = Finish((color, color))
    return coated(draws, finish)


def plain(color: Vec3) -> Finish:
    return Finish((color, color))


ACCENTS: dict[str, Callable[[Draws], Finish]] = {
    "book": lambda draws: plain(tinted(draws.uniform(0.09, 0.15), draws.uniform(0.02, 0.2), draws.uniform(0.8, 0.95))),
    "apple": lambda draws: plain(brown(draws, 0.2, 0.4)),
    "mushroom": lambda draws: plain(tinted(0.1, draws.uniform(0.03, 0.2), draws.uniform(0.75, 0.93))),
    "lamp": metal,
    "candle": metal,
    "can": metal,
}
"""Second finishes that belong to a kind; others are drawn freely, or are the first one."""


def accent(draws: Draws, kind: str, first: Finish) -> Finish:
    if kind in ACCENTS:
        return ACCENTS[kind](draws)
    return first if draws.uniform(0, 1) < 0.5 else coated(draws, plain(any_color(draws)))


# --- Objects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Footprint:
    """How far an object reaches from its place in each of DIRECTIONS, seen from above."""

    reach: Array
    lowest: float

    @staticmethod
    def of(thing: Thing) -> "Footprint":
        outlines = [part.outline() for part in parts_of(thing.kind, thing.sizes)]
        centers = np.concatenate([c for c, _ in outlines]) @ np.array(thing.axes).T
        radii = np.concatenate([r for _, r in outlines])
        reach = (centers[:, :2] @ DIRECTIONS.T + radii[:, None]).max(0)
        return Footprint(reach, float((centers[:, 2] - radii).min()))

    def apart(self, here: Array, other: "Footprint", there: Array) -> bool:
        """Whether a line of one of the directions separates them."""
        return bool((self.reach + other.reach[OPPOSITE] + DIRECTIONS @ (here - there) < -GAP).any())

    def on(self, table: Table, here: Array) -> bool:
        reach = self.reach + DIRECTIONS @ here
        if table.shape == "round":
            return bool((reach < table.half_length - EDGE).all())
        turned = np.array([math.cos(table.theta), math.sin(table.theta)])
        sides = ((turned, table.half_length), (np.array([-turned[1], turned[0]]), table.half_width))
        # The outline is the hull of its reaches: 0.3 % is added for the corners between the directions.
        points = DIRECTIONS * (1.003 * self.reach[:, None]) + here
        return all((np.abs(points @ side) < half - EDGE).all() for side, half in sides)


Places = list[tuple[Footprint, Array]]


def sample_objects(draws: Draws, count: int, table: Table) -> tuple[Thing, ...]:
    """`count` objects that keep clear of each other on the table; anew if one finds no place."""
    while True:
        things: list[Thing] = []
        places: Places = []
        area = AREA + 0.015 * max(count - 5, 0)
        while len(things) < count:
            thing = sample_thing(draws)
            footprint = Footprint.of(thing)
            place = _place(draws, footprint, places, table, area)
            if place is None:
                break
            things.append(replace(thing, location=rounded(place[0], place[1], -footprint.lowest)))
            places.append((footprint, np.array(things[-1].location[:2])))
        if len(things) == count:
            return tuple(things)


def sample_thing(draws: Draws) -> Thing:
    """An object that nobody has placed yet."""
    kind = draws.choice(tuple(KINDS))
    sizes = {
        name: draws.integer(int(low), int(high)) if name in WHOLE else round(draws.uniform(low, high), 6)
        for name, (low, high) in KINDS[kind].ranges.items()
    }
    lies = KINDS[kind].lies and draws.uniform(0, 1) < LYING
    finish = object_finish(draws)
    return Thing(
        kind=kind,
        sizes={name: float(size) for name, size in sizes.items()},
        location=(0.0, 0.0, 0.0),
        theta=round(draws.uniform(0, 2 * math.pi), 6),
        tilt=round(math.pi / 2, 6) if lies else 0.0,
        finish=finish,
        accent=accent(draws, kind, finish),
    )


def _place(draws: Draws, footprint: Footprint, others: Places, table: Table, area: float) -> Array | None:
    for _ in range(TRIES):
        beside = bool(others) and draws.uniform(0, 1) < SIDE_BY_SIDE
        distance, angle = area * math.sqrt(draws.uniform(0, 1)), draws.uniform(0, 2 * math.pi)
        towards = np.array([math.cos(angle), math.sin(angle)])
        here = towards * distance
        if beside:
            _, anchor = draws.choice(others)
            here = _slide(footprint, others, anchor, towards)
        free = all(footprint.apart(here, other, there) for other, there in others)
        if free and footprint.on(table, here) and math.hypot(*here) < 1.2 * area:
            return here
    return None


def _slide(footprint: Footprint, others: Places, anchor: Array, towards: Array) -> Array:
    """The first place away from `anchor` that touches nobody."""
    here = anchor
    for step in range(1, 100):
        here = anchor + towards * (step * STEP)
        if all(footprint.apart(here, other, there) for other, there in others):
            break
    return here


# --- Surroundings -----------------------------------------------------------------------------------------------------


def sample_table(draws: Draws) -> Table:
    is_round = draws.uniform(0, 1) < 0.3
    length = draws.uniform(0.44, 0.6) if is_round else draws.uniform(0.5, 0.8)
    width = length if is_round else draws.uniform(0.42, 0.55)
    finish = coated(draws, _table_finish(draws))
    table = Table(
        shape="round" if is_round else "rectangle",
        half_length=round(length, 6),
        half_width=round(width, 6),
        thickness=round(draws.uniform(0.02, 0.05), 6),
        height=round(draws.uniform(0.68, 0.78), 6),
        theta=round(draws.uniform(0, 2 * math.pi), 6),
        finish=_calm(finish),
        leg=round(draws.uniform(0.02, 0.035), 6),
    )
    return _covered(draws, table) if draws.uniform(0, 1) < 0.35 else table


def _calm(finish: Finish) -> Finish:
    """Tables are polished, not mirrors."""
    return replace(finish, alpha=max(finish.alpha, 0.08))


def _table_finish(draws: Draws) -> Finish:
    pattern = draws.choice(("wood", "wood", "wood", "wood", "plain", "plain", "marble", "noise"))
    if pattern == "wood":
        # Boards are cut beside the heart of the tree: lines along x, wider or narrower.
        finish = replace(textured(draws, "wood", (0.03, 0.08), brown), azimuth=0.0)
        return replace(finish, offset=rounded(finish.offset[0], draws.uniform(3, 12), draws.uniform(1, 4)))
    if pattern == "plain":
        return plain(draws.choice((pale, pale, pale, any_color))(draws))
    return textured(draws, pattern, (0.08, 0.3) if pattern == "marble" else (0.01, 0.03), pale)


def _covered(draws: Draws, table: Table) -> Table:
    """With a cloth: over the whole table or in its middle."""
    whole = draws.uniform(0, 1) < 0.5
    pattern = draws.choice(("plain", "stripes", "checks", "dots", "print"))
    cloth = textured(draws, pattern, (0.03, 0.12), draws.choice((pale, pale, any_color)))
    # Half a period above the plane: it meets the middle of dots and motifs.
    cloth = replace(cloth, azimuth=draws.choice((0.0, round(math.pi / 4, 6))), offset=rounded(*cloth.offset[:2], 0.5))
    if whole:
        return replace(table, cloth=cloth, cloth_length=table.half_length, cloth_width=table.half_width)
    length = draws.uniform(0.3, 0.85) * table.half_length
    return replace(
        table,
        cloth=cloth,
        cloth_length=round(length, 6),
        cloth_width=round(draws.uniform(0.5, 0.9) * min(table.half_width, length * 1.5), 6),
    )


def sample_room(draws: Draws) -> Room:
    floor = draws.choice(("wood", "wood", "checks", "noise", "plain"))
    periods = {"wood": (0.06, 0.12), "checks": (0.15, 0.4), "noise": (0.02, 0.06), "plain": (0.1, 0.2)}
    walls = draws.choice(("plain", "plain", "plain", "noise", "stripes", "print"))
    papers = {"plain": (0.1, 0.2), "noise": (0.1, 0.4), "stripes": (0.1, 0.3), "print": (0.12, 0.3)}
    ground = textured(draws, floor, periods[floor], draws.choice((brown, pale, any_color)))
    paper = textured(draws, walls, papers[walls], pale)
    if floor in ("wood", "checks"):
        ground = replace(ground, azimuth=0.0, offset=rounded(*ground.offset[:2], 1.5))
    if walls == "plain":
        paper = plain(draws.choice((pale, pale, pale, any_color))(draws))
    # Paper hangs straight: no motif is cut by a wall's plane at an angle.
    paper = replace(paper, azimuth=0.0)
    return Room(
        center=(round(draws.uniform(-0.3, 0.3), 6), round(draws.uniform(-0.3, 0.3), 6)),
        half_length=round(draws.uniform(1.9, 2.8), 6),
        half_width=round(draws.uniform(1.9, 2.8), 6),
        height=round(draws.uniform(2.3, 2.8), 6),
        theta=round(draws.uniform(0, 2 * math.pi), 6),
        floor=ground,
        walls=paper,
        environment=(1.0, 1.0, 1.0),
    )


def window(draws: Draws, room: Room) -> Lamp:
    """A pane of daylight on a wall."""
    along = draws.choice((True, False))
    sign = draws.choice((-1.0, 1.0))
    half, free = (room.half_length, room.half_width) if along else (room.half_width, room.half_length)
    width, height = draws.uniform(0.7, 1.4), draws.uniform(0.8, 1.3)
    out, aside = sign * (half - 0.01), draws.uniform(-0.6, 0.6) * (free - width / 2)
    c, s = math.cos(room.theta), math.sin(room.theta)
    x, y = (out, aside) if along else (aside, out)
    nx, ny = (-sign, 0.0) if along else (0.0, -sign)
    return Lamp(
        center=rounded(room.center[0] + c * x - s * y, room.center[1] + s * x + c * y, draws.uniform(0.55, 0.85)),
        normal=rounded(c * nx - s * ny, s * nx + c * ny, 0.0),
        width=round(width, 6),
        height=round(height, 6),
        radiance=daylight(draws),
    )


def daylight(draws: Draws) -> Vec3:
    blue = draws.uniform(0, 1)
    return 1.0 - 0.16 * blue, 1.0 - 0.04 * blue, 1.0


def lamplight(draws: Draws) -> Vec3:
    """Warm white mostly; one in eight of a strong colour."""
    if draws.uniform(0, 1) < 1 / 8:
        x, y, z = tinted(draws.uniform(0, 1), draws.uniform(0.3, 0.6), 1.0)
        return x + 0.05, y + 0.05, z + 0.05
    warm = draws.uniform(0, 1)
    return 1.0, 1.0 - 0.18 * warm, 1.0 - 0.48 * warm


def panel(draws: Draws, room: Room) -> Lamp:
    """Below the ceiling, shining down."""
    side = draws.uniform(0.25, 0.7)
    high = draws.uniform(1.3, 1.8)
    center = rounded(draws.uniform(-0.7, 0.7), draws.uniform(-0.7, 0.7), high)
    return Lamp(center, (0.0, 0.0, -1.0), round(side, 6), round(side, 6), lamplight(draws))


def spot(draws: Draws, room: Room) -> Lamp:
    """A small lamp above the table's edge, looking at the middle."""
    angle, elevation = draws.uniform(0, 2 * math.pi), draws.uniform(0.55, 1.2)
    distance, side = draws.uniform(1.2, 1.6), draws.uniform(0.08, 0.2)
    flat = math.cos(elevation)
    normal = rounded(-flat * math.cos(angle), -flat * math.sin(angle), -math.sin(elevation))
    center = rounded(*(-distance * value for value in normal))
    return Lamp(center, normal, round(side, 6), round(side, 6), lamplight(draws))


def irradiance(lamp: Lamp) -> float:
    """Of the middle of the table by a lamp of its size and place with radiance 1; the lamp as a point."""
    square = sum(value * value for value in lamp.center)
    distance = math.sqrt(square)
    towards = -sum(a * b for a, b in zip(lamp.center, lamp.normal, strict=True)) / distance
    return lamp.width * lamp.height * max(towards, 0.05) * max(lamp.center[2] / distance, 0.05) / square


def sample_lights(draws: Draws, room: Room) -> tuple[Room, tuple[Lamp, ...]]:
    """One to three lamps, exposed so that white paper on the table is light grey to white."""
    setups = ((window,), (window, spot), (window, panel), (panel,), (panel, spot), (spot, spot), (window, panel, spot))
    lamps = [make(draws, room) for make in draws.choice(setups)]
    weights = [draws.uniform(0.4, 1.0) for _ in lamps]
    ambient = draws.uniform(0.25, 0.5)
    exposure = math.pi * draws.uniform(0.75, 1.1)
    # How much of the upper half space is open, as the table sees it.
    rise = room.height - 0.72
    across = 0.5 * (room.half_length + room.half_width)
    opening = across**2 / (across**2 + rise**2)
    sky = daylight(draws)
    strength = ambient * exposure / (math.pi * opening)
    scales = [
        (1 - ambient) * exposure * weight / sum(weights) / irradiance(lamp)
        for lamp, weight in zip(lamps, weights, strict=True)
    ]
    bright = [
        replace(lamp, radiance=rounded(*(scale * value for value in lamp.radiance)))
        for lamp, scale in zip(lamps, scales, strict=True)
    ]
    return replace(room, environment=rounded(*(strength * value for value in sky))), tuple(bright)


def sample_camera(draws: Draws) -> Camera:
    """From all around, 15 to 65 degrees high; the picture is 0.55 to 0.8 m wide at the target."""
    azimuth, elevation = draws.uniform(0, 2 * math.pi), math.radians(draws.uniform(15, 65))
    focal = draws.uniform(1.15, 1.75)
    distance = focal * draws.uniform(0.55, 0.8)
    target = rounded(draws.uniform(-0.06, 0.06), draws.uniform(-0.06, 0.06), draws.uniform(0.02, 0.08))
    flat = distance * math.cos(elevation)
    return Camera(
        location=rounded(
            target[0] + flat * math.cos(azimuth),
            target[1] + flat * math.sin(azimuth),
            target[2] + distance * math.sin(elevation),
        ),
        target=target,
        roll=round(draws.uniform(-0.07, 0.07), 6),
        focal=round(focal, 6),
    )


# --- Scenes -----------------------------------------------------------------------------------------------------------


def sample_scene(
    name: str, objects: tuple[int, int], views: int, size: tuple[int, int], seed: int, split: str, index: int
) -> TableScene:
    """A scene of the family. Its members share objects and views for a seed."""
    around = ("still",) if name == "tabletop-still" else (seed, split, index)
    room_draws = Draws(FAMILY, *around, "surroundings")
    table = sample_table(room_draws)
    room, lamps = sample_lights(room_draws, sample_room(room_draws))
    draws = Draws(FAMILY, seed, split, index, "objects")
    things = sample_objects(draws, draws.integer(*objects), table)
    cameras = Draws(FAMILY, seed, split, index, "views")
    scene = TableScene(
        objects=things,
        table=table,
        room=room,
        lamps=lamps,
        cameras=tuple(sample_camera(cameras) for _ in range(views)),
        height=size[0],
        width=size[1],
        key=noise_key(name, seed, split, index),
    )
    return without_textures(scene) if name == "tabletop-plain" else scene


def without_textures(scene: TableScene) -> TableScene:
    """The same scene in the first colour of every finish."""

    def bare(finish: Finish) -> Finish:
        return Finish((finish.colors[0],) * 2, metal=finish.metal, ior=finish.ior, alpha=finish.alpha)

    table, room = scene.table, scene.room
    return replace(
        scene,
        objects=tuple(replace(thing, finish=bare(thing.finish), accent=bare(thing.accent)) for thing in scene.objects),
        table=replace(table, finish=bare(table.finish), cloth=table.cloth and bare(table.cloth)),
        room=replace(room, floor=bare(room.floor), walls=bare(room.walls)),
    )
