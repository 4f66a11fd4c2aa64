"""The bodies of `tabletop`: from a kind and its parameters to exact parts. No torch: any renderer can use it.

A body stands on z = 0 of its own frame, in metres. A part is a turned profile, a ring or a convex solid, placed in that
frame. Parts may overlap; their union is the body.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Vec3 = tuple[float, float, float]
Matrix = tuple[Vec3, Vec3, Vec3]

UPRIGHT: Matrix = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@dataclass(frozen=True)
class Piece:
    """A piece of a profile: r(z)^2 = mix(r0^2, r1^2) + bulge (z - z0)(z1 - z), with z0 <= z <= z1.

    bulge 0 is a paraboloid (a cylinder if r0 = r1), -((r1 - r0) / (z1 - z0))^2 a cone, 1 a sphere, any other positive
    one an ellipsoid, any other negative one a hyperboloid. Where z0 = z1 it is a flat ring from r0 to r1.
    """

    r0: float
    z0: float
    r1: float
    z1: float
    bulge: float = 0.0

    @property
    def flat(self) -> bool:
        return self.z0 == self.z1

    @property
    def square(self) -> Vec3:
        """(a, b, c) of r(z)^2 = a + b z + c z^2; of a piece that is not flat."""
        slope = (self.r1**2 - self.r0**2) / (self.z1 - self.z0)
        return (
            self.r0**2 - slope * self.z0 - self.bulge * self.z0 * self.z1,
            slope + self.bulge * (self.z0 + self.z1),
            -self.bulge,
        )

    def radius(self, z: float) -> float:
        a, b, c = self.square
        return math.sqrt(max(a + b * z + c * z * z, 0.0))

    def points(self, steps: int) -> list[tuple[float, float]]:
        """(r, z) along the piece, ends included; equal steps of z."""
        if self.flat:
            return [(self.r0, self.z0), (self.r1, self.z1)]
        heights = [self.z0 + (self.z1 - self.z0) * step / steps for step in range(steps + 1)]
        return [(self.radius(z), z) for z in heights]


@dataclass(frozen=True)
class Turned:
    """A closed profile turned about the part's z axis."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Ring:
    """A tube bent about the part's z axis: all points within `tube` of an arc of `radius` around it.

    The arc reaches `half_angle` to both sides of +x. Below pi its ends are half balls.
    """

    radius: float
    tube: float
    half_angle: float = math.pi


@dataclass(frozen=True)
class Solid:
    """A convex solid: the points p with normal . p <= distance for every face."""

    faces: tuple[tuple[Vec3, float], ...]
    corners: tuple[Vec3, ...]


Shape = Turned | Ring | Solid


@dataclass(frozen=True)
class Part:
    """A shape in the frame of its body: body point = origin + axes (stretch * part point). Rows of `axes` are x, y, z.

    Only turned parts are stretched. `accent` parts wear the body's second finish.
    """

    shape: Shape
    origin: Vec3 = (0.0, 0.0, 0.0)
    axes: Matrix = UPRIGHT
    stretch: Vec3 = (1.0, 1.0, 1.0)
    accent: bool = False

    def outline(self) -> tuple[Array, Array]:
        """Balls, centres [B, 3] and radii [B] in the frame of the body, whose convex hull holds the part.

        Circles are polygons in it: 0.6 % of a radius is missing between their corners.
        """
        centers, radii = _outline(self.shape)
        return self.origin + (centers * self.stretch) @ np.array(self.axes).T, radii

    def bounds(self) -> tuple[Vec3, Vec3]:
        """Least and largest coordinates in the part's own frame, before it is stretched."""
        if isinstance(self.shape, Turned):
            widest = max(r for piece in self.shape.pieces for r in _radii(piece))
            heights = [z for piece in self.shape.pieces for z in (piece.z0, piece.z1)]
            return (-widest, -widest, min(heights)), (widest, widest, max(heights))
        if isinstance(self.shape, Ring):
            tube, angle = self.shape.tube, self.shape.half_angle
            side = self.shape.radius * (1.0 if angle >= math.pi / 2 else math.sin(angle)) + tube
            back = self.shape.radius * math.cos(angle) - tube
            return (back, -side, -tube), (self.shape.radius + tube, side, tube)
        corners = np.array(self.shape.corners)
        (a, b, c), (d, e, f) = corners.min(0).tolist(), corners.max(0).tolist()
        return (a, b, c), (d, e, f)


def _radii(piece: Piece) -> list[float]:
    """Radii at the ends and where the piece is widest."""
    radii = [piece.r0, piece.r1]
    if not piece.flat and piece.bulge > 0:
        _, b, c = piece.square
        top = -b / (2 * c)
        if piece.z0 < top < piece.z1:
            radii.append(piece.radius(top))
    return radii


AROUND = 28
"""Corners of a circle's outline."""
_TURNS = np.arange(AROUND) * (2 * math.pi / AROUND)
_CIRCLE = np.stack([np.cos(_TURNS), np.sin(_TURNS)], -1)


def _outline(shape: Shape) -> tuple[Array, Array]:
    if isinstance(shape, Solid):
        return np.array(shape.corners), np.zeros(len(shape.corners))
    if isinstance(shape, Ring):
        angles = shape.half_angle * np.linspace(-1, 1, AROUND + 1)
        arc = np.stack([np.cos(angles), np.sin(angles), 0 * angles], -1) * shape.radius
        return arc, np.full(len(arc), shape.tube)
    profile = np.array([point for piece in shape.pieces for point in piece.points(6 if piece.bulge > 0 else 1)])
    rings = np.empty((len(profile), AROUND, 3))
    rings[..., :2] = profile[:, None, :1] * _CIRCLE
    rings[..., 2] = profile[:, None, 1]
    return rings.reshape(-1, 3), np.zeros(rings.size // 3)


# --- Building parts ---------------------------------------------------------------------------------------------------


def turned(*knots: tuple[float, float] | tuple[float, float, str | float]) -> Turned:
    """A profile through (r, z) knots. A third item says how the piece that ends there is bent.

    Nothing: straight. "from": upright where it begins. "to": upright where it ends. A number: its bulge.
    """
    pieces = []
    for (r0, z0, *_), (r1, z1, *bend) in itertools.pairwise(knots):
        bulge = _bulge(r0, z0, r1, z1, bend[0] if bend else "line")
        pieces.append(Piece(r0, z0, r1, z1, bulge) if z0 <= z1 else Piece(r1, z1, r0, z0, bulge))
    return Turned(tuple(pieces))


def _bulge(r0: float, z0: float, r1: float, z1: float, bend: str | float) -> float:
    if z0 == z1 or not isinstance(bend, str):
        return 0.0 if isinstance(bend, str) else bend
    rise = z1 - z0
    if bend == "line":
        return -(((r1 - r0) / rise) ** 2)
    return (r0**2 - r1**2) / rise**2 if bend == "from" else (r1**2 - r0**2) / rise**2


def block(x: float, y: float, z: float) -> Solid:
    """A box around the axis, z from 0."""
    faces = [((1, 0, 0), x), ((-1, 0, 0), x), ((0, 1, 0), y), ((0, -1, 0), y), ((0, 0, 1), z), ((0, 0, -1), 0)]
    return _solid(faces)


def prism(sides: int, radius: float, height: float) -> Solid:
    """An upright prism over a regular polygon whose sides lie `radius` from the axis."""
    turns = [2 * math.pi * side / sides for side in range(sides)]
    around = [((math.cos(a), math.sin(a), 0.0), radius) for a in turns]
    return _solid([*around, ((0, 0, 1), height), ((0, 0, -1), 0)])


def spire(sides: int, radius: float, height: float) -> Solid:
    """A pyramid over a regular polygon whose sides lie `radius` from the axis."""
    length = math.hypot(height, radius)
    turns = [2 * math.pi * side / sides for side in range(sides)]
    slopes = [
        ((math.cos(a) * height / length, math.sin(a) * height / length, radius / length), radius * height / length)
        for a in turns
    ]
    return _solid([*slopes, ((0, 0, -1), 0)])


def roof(x: float, y: float, height: float) -> Solid:
    """A prism with its ridge along x over the base 2x by 2y."""
    length = math.hypot(height, y)
    slopes = [((0.0, side * height / length, y / length), y * height / length) for side in (1, -1)]
    return _solid([*slopes, ((1, 0, 0), x), ((-1, 0, 0), x), ((0, 0, -1), 0)])


def _solid(faces: Iterable[tuple[tuple[float, float, float], float]]) -> Solid:
    """With its corners: the points where three faces meet and no other cuts them off."""
    faces = [((float(n[0]), float(n[1]), float(n[2])), float(d)) for n, d in faces]
    corners: dict[tuple[float, ...], Vec3] = {}
    for three in itertools.combinations(faces, 3):
        point = _meet(three)
        if point and all(sum(a * b for a, b in zip(n, point, strict=True)) <= d + 1e-9 for n, d in faces):
            corners[tuple(round(value, 7) for value in point)] = point
    return Solid(tuple(faces), tuple(corners.values()))


def _meet(faces: Iterable[tuple[Vec3, float]]) -> Vec3 | None:
    (a, d), (b, e), (c, f) = faces
    bc, ca, ab = _cross(b, c), _cross(c, a), _cross(a, b)
    volume = sum(x * y for x, y in zip(a, bc, strict=True))
    if abs(volume) < 1e-9:
        return None
    x, y, z = ((d * p + e * q + f * r) / volume for p, q, r in zip(bc, ca, ab, strict=True))
    return x, y, z


def _cross(a: Vec3, b: Vec3) -> Vec3:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


STANDING: Matrix = ((1.0, 0.0, 0.0), (0.0, 0.0, -1.0), (0.0, 1.0, 0.0))
"""Axes of a ring that stands on edge in the plane y = 0, its arc around the body's +x."""


def leaning(angle: float) -> Matrix:
    """Axes of a part whose z axis leans by `angle` from upright towards +x."""
    c, s = math.cos(angle), math.sin(angle)
    return (c, 0.0, s), (0.0, 1.0, 0.0), (-s, 0.0, c)


BEHIND: Matrix = ((-1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, 1.0, 0.0))
"""The same ring around the body's -x."""


# --- The kinds --------------------------------------------------------------------------------------------------------

Sizes = Mapping[str, float]


@dataclass(frozen=True)
class Kind:
    """A family of bodies: parameters with the ranges in which they make sense, and how to build one."""

    ranges: Mapping[str, tuple[float, float]]
    build: Callable[[Sizes], list[Part]]
    lies: bool = False
    """May lie on its side."""


def _ball(p: Sizes) -> list[Part]:
    r = p["radius"]
    return [Part(turned((0, 0), (0, 2 * r, 1.0)))]


def _egg(p: Sizes) -> list[Part]:
    r, h = p["radius"], p["height"]
    return [Part(turned((0, 0), (r, 0.42 * h, "to"), (0, h, "from")))]


def _can(p: Sizes) -> list[Part]:
    r, h = p["radius"], p["height"]
    rim, inner = 0.06 * r, 0.9 * r
    profile = turned((0, 0), (r - rim, 0), (r, rim), (r, h - rim), (r - rim, h), (inner, h), (inner, h - rim))
    return [Part(profile), Part(turned((0, h - rim), (inner, h - rim)), accent=True)]


def _cone(p: Sizes) -> list[Part]:
    return [Part(turned((0, 0), (p["radius"], 0), (0, p["height"])))]


def _pyramid(p: Sizes) -> list[Part]:
    return [Part(spire(round(p["sides"]), p["radius"], p["height"]))]


def _box(p: Sizes) -> list[Part]:
    return [Part(block(p["length"] / 2, p["width"] / 2, p["height"]))]


def _capsule(p: Sizes) -> list[Part]:
    r, h = p["radius"], p["height"]
    middle = h / 2
    return [
        Part(turned((0, 0), (r, r, "to"), (r, middle))),
        Part(turned((r, middle), (r, h - r), (0, h, "from")), accent=True),
    ]


def _ring(p: Sizes) -> list[Part]:
    return [Part(Ring(p["radius"], p["tube"]), origin=(0.0, 0.0, p["tube"]))]


def _mug(p: Sizes) -> list[Part]:
    r, h, wall = p["radius"], p["height"], 0.09 * p["radius"]
    cup = turned((0, 0), (0.9 * r, 0), (r, 0.1 * r, "to"), (r, h), (r - wall, h), (r - wall, wall), (0, wall))
    handle = Ring(p["handle"] * h, 0.11 * r, math.pi / 2)
    # Its round ends reach through the wall and no farther.
    return [Part(cup), Part(handle, origin=(1.02 * r, 0.0, 0.52 * h), axes=STANDING, accent=True)]


def _bowl(p: Sizes) -> list[Part]:
    r, h = p["radius"], p["height"]
    foot, wall = 0.45 * r, 0.06 * r
    profile = turned((0, 0), (foot, 0), (foot, 0.1 * h), (r, h, "to"), (r - wall, h), (0, 0.1 * h + wall, "from"))
    return [Part(profile)]


def _plate(p: Sizes) -> list[Part]:
    r = p["radius"]
    profile = turned((0, 0), (0.6 * r, 0), (r, 0.14 * r), (r, 0.17 * r), (0.62 * r, 0.05 * r), (0, 0.05 * r))
    return [Part(profile)]


def _bottle(p: Sizes) -> list[Part]:
    r, h = p["radius"], p["height"]
    neck = p["neck"] * r
    body = turned((0, 0), (0.92 * r, 0), (r, 0.1 * r, "to"), (r, 0.58 * h), (neck, 0.76 * h, "from"), (neck, 0.93 * h))
    cap = turned((0, 0.92 * h), (1.18 * neck, 0.92 * h), (1.18 * neck, h), (0, h))
    return [Part(body), Part(cap, accent=True)]


def _vase(p: Sizes) -> list[Part]:
    r, h = p["radius"], p["height"]
    neck, lip, wall = p["neck"] * r, (0.35 + 0.5 * p["neck"]) * r, 0.05 * r
    outside = ((0, 0), (0.55 * r, 0), (r, 0.4 * h, "to"), (neck, 0.78 * h, "from"), (lip, h, "from"))
    inside = ((lip - wall, h), (neck - wall, 0.78 * h, "to"), (0, 0.78 * h))
    return [Part(turned(*outside, *inside))]


def _tumbler(p: Sizes) -> list[Part]:
    r, h = p["radius"], p["height"]
    foot, wall = p["foot"] * r, 0.06 * r
    return [Part(turned((0, 0), (foot, 0), (r, h), (r - wall, h), (foot - wall, 2 * wall), (0, 2 * wall)))]


def _book(p: Sizes) -> list[Part]:
    x, y, h = p["length"] / 2, p["width"] / 2, p["thickness"]
    board = min(0.004, 0.15 * h)
    return [
        Part(block(x, y, board)),
        Part(block(x, y, board), origin=(0.0, 0.0, h - board)),
        Part(block(x, board / 2, h), origin=(0.0, -y + board / 2, 0.0)),
        Part(block(0.965 * x, 0.97 * y, h - 2 * board), origin=(0.0, -0.02 * y, board), accent=True),
    ]


def _brick(p: Sizes) -> list[Part]:
    pitch, h, across, along = p["pitch"], 1.2 * p["pitch"], round(p["rows"]), round(p["columns"])
    stud = turned((0, 0), (0.3 * pitch, 0), (0.3 * pitch, 0.22 * pitch), (0, 0.22 * pitch))
    body = Part(block(along * pitch / 2, across * pitch / 2, h))
    places = itertools.product(range(along), range(across))
    studs = [((i - (along - 1) / 2) * pitch, (j - (across - 1) / 2) * pitch, h) for i, j in places]
    return [body, *(Part(stud, origin=place) for place in studs)]


def _lamp(p: Sizes) -> list[Part]:
    h, shade = p["height"], p["shade"]
    foot = 0.7 * shade
    low, top, wall = 0.58 * h, 0.5 * shade, 0.03 * shade
    stand = turned(
        (0, 0), (foot, 0), (foot, 0.03 * h), (0.09 * foot, 0.08 * h, "to"), (0.09 * foot, 0.9 * h), (0, 0.9 * h)
    )
    cover = turned((shade, low), (top, h), (top - wall, h), (shade - wall, low), (shade, low))
    disc = turned((0, 0.9 * h), (top + 0.2 * (shade - top), 0.9 * h))
    return [Part(stand, accent=True), Part(cover), Part(disc)]


def _teapot(p: Sizes) -> list[Part]:
    r, h = p["radius"], p["height"] * p["radius"]
    body = turned((0, 0), (0.6 * r, 0), (r, 0.45 * h, "to"), (0.55 * r, 0.92 * h, "from"))
    lid = turned((0, 0.92 * h), (0.58 * r, 0.92 * h), (0.16 * r, 1.08 * h), (0, 1.08 * h))
    knob = turned((0, 0), (0, 0.28 * r, 1.0))
    spout = turned((0, 0), (0.24 * r, 0), (0.1 * r, 1.15 * r), (0.06 * r, 1.15 * r), (0.06 * r, r), (0, r))
    return [
        Part(body),
        Part(lid, accent=True),
        Part(knob, origin=(0.0, 0.0, 1.05 * h), accent=True),
        Part(spout, origin=(0.62 * r, 0.0, 0.3 * h), axes=leaning(0.7)),
        Part(Ring(0.32 * h, 0.085 * r, 0.62 * math.pi), origin=(-0.93 * r, 0.0, 0.5 * h), axes=BEHIND),
    ]


def _pawn(p: Sizes) -> list[Part]:
    h, foot = p["height"], p["foot"] * p["height"]
    base = turned((0, 0), (foot, 0), (foot, 0.06 * h), (0.86 * foot, 0.13 * h), (0.8 * foot, 0.18 * h), (0, 0.18 * h))
    stem = turned((0, 0.17 * h), (0.75 * foot, 0.17 * h), (0.3 * foot, 0.62 * h, "to"), (0, 0.62 * h))
    collar = turned((0, 0.6 * h), (0.52 * foot, 0.63 * h), (0, 0.66 * h))
    head = turned((0, 0.64 * h), (0, h, 1.0))
    return [Part(base), Part(stem), Part(collar), Part(head)]


def _bishop(p: Sizes) -> list[Part]:
    h, foot = p["height"], p["foot"] * p["height"]
    base = turned((0, 0), (foot, 0), (foot, 0.05 * h), (0.8 * foot, 0.12 * h), (0, 0.12 * h))
    stem = turned((0, 0.11 * h), (0.68 * foot, 0.11 * h), (0.27 * foot, 0.6 * h, "to"), (0, 0.6 * h))
    collar = turned((0, 0.57 * h), (0.55 * foot, 0.6 * h), (0.5 * foot, 0.62 * h), (0, 0.64 * h))
    head = turned((0.24 * foot, 0.62 * h), (0.44 * foot, 0.74 * h, "to"), (0, 0.94 * h, "from"))
    return [Part(base), Part(stem), Part(collar), Part(head), Part(_knob(0.04 * h), origin=(0.0, 0.0, 0.92 * h))]


def _knob(radius: float) -> Turned:
    return turned((0, 0), (0, 2 * radius, 1.0))


def _rook(p: Sizes) -> list[Part]:
    h, foot = p["height"], p["foot"] * p["height"]
    base = turned((0, 0), (foot, 0), (foot, 0.08 * h), (0.8 * foot, 0.18 * h), (0, 0.18 * h))
    stem = turned((0, 0.17 * h), (0.72 * foot, 0.17 * h), (0.5 * foot, 0.7 * h, "to"), (0, 0.7 * h))
    crown = turned(
        (0, 0.68 * h), (0.5 * foot, 0.68 * h), (0.72 * foot, 0.76 * h), (0.72 * foot, h), (0.5 * foot, h),
        (0.5 * foot, 0.86 * h), (0, 0.86 * h),
    )  # fmt: skip
    return [Part(base), Part(stem), Part(crown)]


def _apple(p: Sizes) -> list[Part]:
    r = p["radius"]
    h = p["height"] * r
    fruit = turned((0, 0.12 * h), (0.38 * r, 0), (r, 0.58 * h, "to"), (0.42 * r, h, "from"), (0, 0.86 * h, "to"))
    stalk = turned((0, 0.8 * h), (0.05 * r, 0.8 * h), (0.06 * r, 1.18 * h), (0, 1.18 * h))
    return [Part(fruit), Part(stalk, accent=True)]


def _mushroom(p: Sizes) -> list[Part]:
    r, h = p["radius"], p["height"]
    stalk = turned((0, 0), (0.42 * r, 0), (0.3 * r, 0.5 * h, "to"), (0.3 * r, 0.6 * h))
    cap = turned((0, 0.55 * h), (0.85 * r, 0.5 * h), (r, 0.6 * h, "to"), (0, h, "from"))
    return [Part(stalk, accent=True), Part(cap)]


def _house(p: Sizes) -> list[Part]:
    x, y, h = p["length"] / 2, p["width"] / 2, p["height"]
    chimney = block(0.14 * x, 0.14 * x, 0.45 * h)
    return [
        Part(block(x, y, 0.58 * h)),
        Part(roof(1.1 * x, 1.15 * y, 0.42 * h), origin=(0.0, 0.0, 0.58 * h), accent=True),
        Part(chimney, origin=(0.5 * x, 0.4 * y, 0.6 * h)),
    ]


def _nut(p: Sizes) -> list[Part]:
    return [Part(prism(round(p["sides"]), p["radius"], p["height"]))]


def _dumbbell(p: Sizes) -> list[Part]:
    r, length = p["radius"], p["length"]
    lying: Matrix = ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (-1.0, 0.0, 0.0))
    bar = turned((0, -length / 2), (0.35 * r, -length / 2), (0.35 * r, length / 2), (0, length / 2))
    ends = [Part(_knob(r), origin=(side * length / 2, 0.0, 0.0)) for side in (-1, 1)]
    return [Part(bar, origin=(0.0, 0.0, r), axes=lying, accent=True), *ends]


def _hourglass(p: Sizes) -> list[Part]:
    r, h = p["radius"], p["height"]
    waist, rim = p["waist"] * r, 0.12 * r
    body = turned((0.86 * r, rim), (waist, h / 2, "to"), (0.86 * r, h - rim, "from"))
    plates = [turned((0, z), (r, z), (r, z + rim), (0, z + rim)) for z in (0.0, h - rim)]
    return [Part(body), *(Part(plate, accent=True) for plate in plates)]


def _candle(p: Sizes) -> list[Part]:
    r, h = p["radius"], p["height"]
    holder = turned(
        (0, 0), (2.2 * r, 0), (2.3 * r, 0.35 * r), (2.15 * r, 0.35 * r), (1.3 * r, 0.16 * r), (1.3 * r, 1.1 * r),
        (0, 1.1 * r),
    )  # fmt: skip
    wax = turned((0, r), (r, r), (r, h), (0, h + 0.25 * r))
    wick = turned((0, h), (0.07 * r, h), (0.07 * r, h + 0.7 * r), (0, h + 0.7 * r))
    return [Part(holder, accent=True), Part(wax), Part(wick, accent=True)]


def _jar(p: Sizes) -> list[Part]:
    r, h = p["radius"], p["height"]
    body = turned((0, 0), (0.9 * r, 0), (r, 0.15 * r, "to"), (r, 0.7 * h), (0.78 * r, 0.84 * h, "from"))
    lid = turned((0, 0.83 * h), (0.86 * r, 0.83 * h), (0.86 * r, 0.97 * h), (0.8 * r, h), (0, h))
    return [Part(body), Part(lid, accent=True)]


def _dish(p: Sizes) -> list[Part]:
    """An oval dish: a bowl stretched along x."""
    (bowl,) = _bowl({"radius": p["radius"], "height": p["height"]})
    return [Part(bowl.shape, stretch=(p["oval"], 1.0, 1.0))]


KINDS: dict[str, Kind] = {
    "ball": Kind({"radius": (0.025, 0.07)}, _ball),
    "egg": Kind({"radius": (0.024, 0.05), "height": (0.065, 0.13)}, _egg),
    "can": Kind({"radius": (0.03, 0.05), "height": (0.06, 0.17)}, _can, lies=True),
    "cone": Kind({"radius": (0.03, 0.07), "height": (0.07, 0.17)}, _cone),
    "pyramid": Kind({"radius": (0.035, 0.06), "height": (0.06, 0.14), "sides": (3, 6)}, _pyramid),
    "box": Kind({"length": (0.06, 0.15), "width": (0.05, 0.11), "height": (0.04, 0.15)}, _box),
    "capsule": Kind({"radius": (0.022, 0.045), "height": (0.11, 0.2)}, _capsule, lies=True),
    "ring": Kind({"radius": (0.035, 0.065), "tube": (0.011, 0.022)}, _ring),
    "mug": Kind({"radius": (0.035, 0.05), "height": (0.075, 0.12), "handle": (0.24, 0.3)}, _mug),
    "bowl": Kind({"radius": (0.055, 0.1), "height": (0.04, 0.08)}, _bowl),
    "plate": Kind({"radius": (0.07, 0.12)}, _plate),
    "bottle": Kind({"radius": (0.028, 0.045), "height": (0.17, 0.27), "neck": (0.3, 0.45)}, _bottle, lies=True),
    "vase": Kind({"radius": (0.045, 0.075), "height": (0.13, 0.24), "neck": (0.35, 0.6)}, _vase),
    "tumbler": Kind({"radius": (0.032, 0.05), "height": (0.07, 0.14), "foot": (0.65, 0.95)}, _tumbler),
    "book": Kind({"length": (0.13, 0.22), "width": (0.1, 0.15), "thickness": (0.018, 0.05)}, _book),
    "brick": Kind({"pitch": (0.026, 0.04), "rows": (1, 2), "columns": (2, 4)}, _brick),
    "lamp": Kind({"height": (0.2, 0.3), "shade": (0.065, 0.095)}, _lamp),
    "teapot": Kind({"radius": (0.055, 0.08), "height": (1.3, 1.75)}, _teapot),
    "pawn": Kind({"height": (0.1, 0.17), "foot": (0.24, 0.32)}, _pawn),
    "bishop": Kind({"height": (0.14, 0.22), "foot": (0.19, 0.25)}, _bishop),
    "rook": Kind({"height": (0.1, 0.17), "foot": (0.27, 0.36)}, _rook),
    "apple": Kind({"radius": (0.035, 0.05), "height": (1.55, 1.9)}, _apple),
    "mushroom": Kind({"radius": (0.04, 0.07), "height": (0.07, 0.13)}, _mushroom),
    "house": Kind({"length": (0.08, 0.14), "width": (0.06, 0.1), "height": (0.09, 0.16)}, _house),
    "nut": Kind({"radius": (0.03, 0.055), "height": (0.03, 0.12), "sides": (5, 8)}, _nut),
    "dumbbell": Kind({"radius": (0.025, 0.04), "length": (0.1, 0.17)}, _dumbbell),
    "hourglass": Kind({"radius": (0.035, 0.055), "height": (0.1, 0.18), "waist": (0.15, 0.3)}, _hourglass),
    "candle": Kind({"radius": (0.016, 0.028), "height": (0.1, 0.2)}, _candle),
    "jar": Kind({"radius": (0.035, 0.055), "height": (0.08, 0.15)}, _jar),
    "dish": Kind({"radius": (0.05, 0.07), "height": (0.035, 0.06), "oval": (1.3, 1.8)}, _dish),
}
"""Parameters are metres, shares of another length, or whole numbers (`sides`, `rows`, `columns`)."""

WHOLE = ("sides", "rows", "columns")
"""Parameters that are whole numbers."""


def parts_of(kind: str, sizes: Sizes) -> list[Part]:
    """The parts of a body, in its own frame."""
    return KINDS[kind].build(sizes)
