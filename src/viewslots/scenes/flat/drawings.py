"""Our own clip art: ten things and a meadow as vectors, and the small drawer that makes pictures of them."""

import math
from collections.abc import Sequence

from PIL import Image, ImageDraw

Point = tuple[float, float]

DETAIL = 6
"""Pixels a unit of a vector drawing."""
INK = "#3a2b35"

OUTLINE = {"ground": 2.2, "sky": 4.5}
"""Half the width of outlines in the drawings: a bit less than a pixel of a scene."""
DRAWINGS = {
    "bear": """
        #9c6235 oval 16 15 9 9; oval 56 15 9 9
        flat #e8b98a oval 16 15 4.5 4.5; oval 56 15 4.5 4.5
        #9c6235 oval 10 50 8 13 25; oval 62 50 8 13 -25; oval 36 55 23 20; oval 17 70 11 8; oval 55 70 11 8
        flat #e8b98a oval 36 57 13 13; oval 17 71 5 4; oval 55 71 5 4
        #9c6235 oval 36 27 25 21
        flat #e8b98a oval 36 34 12 9
        flat ink oval 36 30 5 3.5; oval 25 23 3.2 3.2; oval 47 23 3.2 3.2; line 2.2 30 37 36 40 42 37""",
    "cat": """
        #f29a2e line 8 48 64 62 62 65 50 59 42
        #f29a2e blob 20 70 18 54 24 38 36 34 48 38 54 54 52 70 36 72
        flat #fff1dc oval 36 58 9 11
        flat #c76a12 poly 18 52 28 55 18 59; poly 54 52 44 55 54 59
        #f29a2e poly 12 26 11 3 29 12; poly 60 26 61 3 43 12; oval 36 25 26 18
        flat #ffb9b0 poly 16 17 15 9 23 13; poly 56 17 57 9 49 13
        flat #c76a12 poly 32 7 40 7 36 17
        flat #fff1dc oval 30 32 7 5.5; oval 42 32 7 5.5
        flat ink oval 24 23 3.6 4.6; oval 48 23 3.6 4.6; poly 32 27 40 27 36 31""",
    "dog": """
        #f3e3c8 line 7 66 36 74 30 77 20
        #f3e3c8 oval 48 44 24 13; poly 26 48 36 48 35 68 27 68; poly 38 50 46 50 45 68 38 68
        #f3e3c8 poly 56 50 64 50 63 68 56 68; poly 64 44 73 44 72 68 65 68
        flat #f3e3c8 oval 48 44 24 13
        flat #a8662f oval 55 39 11 7
        #f3e3c8 oval 26 24 17 16; oval 12 31 12 8
        flat #a8662f oval 22 20 7 8
        #a8662f blob 30 10 40 12 45 26 42 40 34 38 30 24
        flat #e0322f poly 22 41 40 38 41 44 25 47
        flat ink oval 4 27 5 4; oval 20 21 3.4 3.4; line 2 6 34 12 37 18 35""",
    "duck": """
        #ffd53a poly 52 38 70 28 66 48; blob 14 44 26 38 40 38 56 34 64 42 56 58 38 62 20 58
        #ff8a1e poly 30 60 38 60 38 66 28 68; poly 42 60 50 60 50 66 40 68
        #f5b31b blob 30 46 46 42 56 44 48 54 36 55
        #ff8a1e blob 10 20 1 24 1 29 14 30
        #ffd53a oval 22 20 15 15
        flat #ffd53a blob 14 28 30 28 38 40 26 50 15 46
        flat ink oval 17 17 3.2 4""",
    "snake": """
        #e0322f line 3 8 20 0 22; line 3 8 20 1 16
        #8f63d2 line 6 88 42 80 53 70 54; line 10 80 53 70 54 62 48; oval 17 16 13 10
        #8f63d2 line 14 70 54 60 47 50 48 42 60 28 60 22 46 26 30 22 18
        flat #8f63d2 line 6 88 42 80 53 70 54; line 10 80 53 70 54 62 48; oval 17 16 13 10
        flat #ffe066 oval 62 48 4.5 4.5; oval 48 51 4.5 4.5; oval 35 61 4.5 4.5; oval 23 47 4.5 4.5; oval 25 33 4.5 4.5
        flat #ffffff oval 15 12 4.4 4.4
        flat ink oval 14 12.5 2.6 2.6""",
    "sun": """
        #ffb300 star 65 65 42 63 12
        #ffe033 oval 65 65 40 40
        flat #ff9a5c oval 40 74 7 5; oval 90 74 7 5
        flat ink oval 52 57 4.5 7; oval 78 57 4.5 7; line 5 50 77 65 86 80 77""",
    "cloud": """
        #ffffff oval 32 58 28 24; oval 62 36 34 30; oval 100 44 28 26; oval 122 62 24 20; poly 30 52 122 52 122 82 30 82
        flat #cfe3f7 poly 28 70 126 70 122 82 30 82; oval 34 72 14 10; oval 118 72 14 10""",
    "balloon": """
        #e53935 blob 45 2 75 14 86 42 74 70 56 88 34 88 16 70 4 42 15 14
        flat #ffd23f blob 45 2 60 14 66 42 60 70 51 88 39 88 30 70 24 42 30 14
        flat #2f7fd6 blob 45 2 51 14 54 42 51 70 47 88 43 88 39 70 36 42 39 14
        flat ink line 3 34 90 38 106; line 3 56 90 52 106
        #a0662f poly 33 104 57 104 54 122 36 122""",
    "airplane": """
        #e53935 poly 132 34 150 4 164 4 156 42
        #f4f7fb blob 8 52 22 38 60 32 120 34 160 36 160 50 120 62 60 68 22 66
        #7fb2e5 blob 12 50 24 38 40 37 38 50
        flat #2f6fbf oval 62 46 6 6; oval 82 46 6 6; oval 102 46 6 6; oval 122 46 6 6
        #e53935 poly 66 56 104 56 128 92 108 92; poly 136 44 166 44 170 56 150 54""",
    "rocket": """
        #ff9a1f blob 24 96 36 92 48 96 44 110 36 124 28 110
        flat #ffe033 oval 36 102 6 10
        #e53935 poly 18 58 2 84 4 98 22 88; poly 54 58 70 84 68 98 50 88
        #eef2f7 blob 36 2 52 26 56 54 52 88 48 96 24 96 20 88 16 54 20 26
        #e53935 blob 36 1 46 14 52 28 36 31 20 28 26 14
        #4aa3e8 oval 36 52 10 10""",
}
MEADOW = """
    flat #7fc8f3 poly 0 0 64 0 64 64 0 64
    flat #8dcff5 poly 0 8 64 8 64 64 0 64
    flat #9bd6f7 poly 0 15 64 15 64 64 0 64
    flat #aaddf9 poly 0 21 64 21 64 64 0 64
    flat #b9e5fb poly 0 26 64 26 64 64 0 64
    flat #8ec9a4 oval 12 40 22 9; oval 52 41 28 11
    flat #7bbf6a oval 34 42 24 7; oval 0 44 18 9; oval 66 44 20 8
    flat #8ed463 poly 0 38 64 38 64 64 0 64
    flat #80c955 blob -4 46 20 44 44 47 68 45 68 56 40 54 18 57 -4 54
    flat #74bd4a blob -4 60 24 58 44 61 68 58 68 68 -4 68
    flat #ffffff oval 9 51 0.8 0.8; oval 30 57 0.9 0.9; oval 57 49 0.8 0.8
    flat #ffe14d oval 20 61 0.9 0.9; oval 47 51 0.8 0.8
    flat #ff8fb0 oval 38 48 0.8 0.8; oval 60 59 0.9 0.9; oval 4 58 0.9 0.9"""


def draw_vectors(text: str, side: int, margin: int = 0, ink: float = 0.0) -> Image.Image:
    """An RGBA picture of `DETAIL` pixels a unit, drawn line by line: `[flat] color shape; shape; ...`.

    Shapes are `oval x y rx ry [degrees]`, `poly x y x y ...`, `blob` (a smooth poly), `star x y inner outer rays` and
    `line width x y x y ...` (smooth). Those of one line share an outline, `ink` units wide, unless it is flat.
    A colour is `#rrggbb` or `ink`.
    """
    image = Image.new("RGBA", ((side + 2 * margin) * DETAIL,) * 2)
    canvas = ImageDraw.Draw(image)
    for line in filter(None, map(str.strip, text.splitlines())):
        color, _, shapes = line.removeprefix("flat ").partition(" ")
        polygons = [polygon for shape in shapes.split(";") for polygon in _trace(shape)]
        polygons = [[((x + margin) * DETAIL, (y + margin) * DETAIL) for x, y in polygon] for polygon in polygons]
        if not line.startswith("flat "):
            for polygon in polygons:
                canvas.line([*polygon, *polygon[:2]], INK, round(2 * ink * DETAIL), joint="curve")
        for polygon in polygons:
            canvas.polygon(polygon, INK if color == "ink" else color)
    return image


def _trace(shape: str) -> list[list[Point]]:
    """The closed polygons that fill a shape."""
    name, *words = shape.split()
    numbers = [float(word) for word in words]
    points = list(zip(numbers[0::2], numbers[1::2], strict=False))
    if name == "poly":
        return [points]
    if name == "blob":
        return [_smooth([points[-1], *points, *points[:2]])]
    if name == "oval":
        return [_oval(*numbers)]
    if name == "star":
        x, y, inner, outer, rays = numbers
        rim = [((inner, outer)[k % 2], math.pi * k / rays) for k in range(2 * int(rays))]
        return [[(x + radius * math.cos(angle), y + radius * math.sin(angle)) for radius, angle in rim]]
    points = list(zip(numbers[1::2], numbers[2::2], strict=True))
    return [_oval(x, y, numbers[0] / 2, numbers[0] / 2) for x, y in _smooth([points[0], *points, points[-1]])]


def _oval(x: float, y: float, across: float, down: float, degrees: float = 0.0) -> list[Point]:
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    rim = [(across * math.cos(math.pi * k / 36), down * math.sin(math.pi * k / 36)) for k in range(72)]
    return [(x + u * cos - v * sin, y + u * sin + v * cos) for u, v in rim]


def _smooth(points: Sequence[Point]) -> list[Point]:
    """Catmull and Rom's curve through all points but the first and the last."""

    def between(a: float, b: float, c: float, d: float, t: float) -> float:
        return b + t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * b - a - 3 * c + d))) / 2

    curve = []
    for four in zip(points, points[1:], points[2:], points[3:], strict=False):
        xs, ys = zip(*four, strict=True)
        curve += [(between(*xs, k / 16), between(*ys, k / 16)) for k in range(17)]
    return curve
