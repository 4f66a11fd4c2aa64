"""Scenes nobody has seen: drawn by a number, rendered while the user waits, with their truth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from viewslots.data.presets import DATA_PRESETS
from viewslots.errors import UserError
from viewslots.scenes.spec import Scene, SceneObject
from viewslots.scenes.world import World
from viewslots.types import Pictures

SPLIT = "test1"
"""Scenes of a key of their own, which training never draws."""
MOST_NUMBER = 999_999_999
MOST_PICTURES = 6


@dataclass(frozen=True)
class FreshScene:
    """Pictures of one scene with their truth, and its objects in words."""

    pictures: Pictures
    names: tuple[str, ...]


def world_for(preset: str, size: int) -> World | None:
    """Scenes of the kind a model was trained on: those of its preset, else CLEVR's; None where none have its size."""
    world = DATA_PRESETS[preset if preset in DATA_PRESETS else "clevr-m1"].world(None)
    return world if world.height == world.width == size else None


def fresh_scene(world: World, number: int, pictures: int, device: str = "cpu") -> FreshScene:
    """Scene `number` with its first pictures. The number decides everything."""
    count = picture_count(pictures, world.views)
    scene = world.sample(check_number(number), SPLIT, 0)
    if isinstance(scene, Scene):
        scene = replace(scene, cameras=scene.cameras[:count])  # other pictures need not be rendered
    drawn = world.render([scene], world.slots(SPLIT), device).first_views(count)
    assert drawn.num_objects is not None  # our worlds know everything
    return FreshScene(drawn, object_names(scene, int(drawn.num_objects[0])))


def check_number(number: int) -> int:
    if not 0 <= number <= MOST_NUMBER:
        raise UserError(f"a scene has a whole number from 0 to {MOST_NUMBER:,}, not {number}")
    return number


def picture_count(asked: int, most: int) -> int:
    """As many pictures as there are, and as a user is willing to wait for."""
    if asked < 1:
        raise UserError(f"the model needs at least one picture, not {asked}")
    return min(asked, most, MOST_PICTURES)


def object_names(scene: Any, count: int) -> tuple[str, ...]:
    """The true objects in words, as far as the scene tells."""
    if isinstance(scene, Scene):
        return distinct([described(body) for body in scene.objects])
    return tuple(f"true object {k + 1}" for k in range(count))


def described(body: SceneObject) -> str:
    return " ".join(word for word in (body.size, body.color, body.material, body.shape) if word)


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Twins get numbers."""
    return tuple(
        f"{name} ({names[: k + 1].count(name)})" if names.count(name) > 1 else name for k, name in enumerate(names)
    )
