"""A scene on the table: pictures drawn by a number or a user's own, what the model made of them, the truth if known."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from viewslots.data.dataset import SceneDataset
from viewslots.data.presets import DATA_PRESETS
from viewslots.data.store import SplitArrays, Store
from viewslots.data.views import FirstViews
from viewslots.errors import UserError
from viewslots.metrics.score import METRICS, match, score_scenes
from viewslots.scenes.clevr.spec import Scene, SceneObject
from viewslots.scenes.tabletop.table_scene import TableScene
from viewslots.scenes.world import World
from viewslots.types import BACKGROUND, COVERED, Decomposition, Extent, Pictures, SceneTruth, sides
from viewslots.viewpoints.edits import surest_first
from viewslots.viewpoints.photos import Pictured
from viewslots.viewpoints.scene import InferredScene, Reader, View, decomposition_of

SPLIT = "test1"
"""Scenes of a key of their own, which training never draws."""
MOST_NUMBER = 999_999_999
MOST_PICTURES = 6
SCREEN = 1280
"""Pixels of the longer side of photos that are kept for a tab."""

NumberedScenes = World | SplitArrays
"""Where numbered scenes come from: rendered, or out of a data set."""


@dataclass(frozen=True)
class FreshScene:
    """Pictures of one scene with their truth, and its objects in words."""

    pictures: Pictures
    names: tuple[str, ...]


def world_for(data: str, size: Extent) -> World | None:
    """Scenes of the kind a model was trained on: those of its data, else CLEVR's; None where none have its size."""
    world = DATA_PRESETS[data if data in DATA_PRESETS else "clevr-m1"].world(None)
    return world if (world.height, world.width) == sides(size) else None


def held_out(store: Store) -> SplitArrays:
    """Scenes that training did not see, where there are some."""
    name = next((name for name in (SPLIT, "valid") if name in store.splits), store.splits[0])
    return replace(store.split(name), scene_names=store.names(name))


def fresh_scene(world: World, number: int, pictures: int, device: str = "cpu") -> FreshScene:
    """Scene `number` with its first pictures. The number decides everything."""
    count = picture_count(pictures, world.views)
    scene = world.sample(check_number(number), SPLIT, 0)
    if isinstance(scene, Scene | TableScene):
        shown: Any = scene.cameras[:count]
        scene = replace(scene, cameras=shown)  # other pictures need not be rendered
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
    if isinstance(scene, TableScene):
        return distinct([thing.kind for thing in scene.objects])
    return tuple(f"true object {k + 1}" for k in range(count))


def described(body: SceneObject) -> str:
    return " ".join(word for word in (body.size, body.color, body.material, body.shape) if word)


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Twins get numbers."""
    return tuple(
        f"{name} ({names[: k + 1].count(name)})" if names.count(name) > 1 else name for k, name in enumerate(names)
    )


@dataclass(frozen=True, eq=False)
class Opened:
    """One inferred scene, never edited."""

    title: str
    scene: InferredScene
    rebuilt: tuple[View, ...]
    """What the model sees from the viewpoint of each picture."""
    names: tuple[str, ...] = ()
    """The true objects in words."""
    truth: SceneTruth | None = None
    warning: str | None = None
    """Why not to trust the scene; scenes that were drawn for the model are of the kind that it knows."""
    known: "dict[int, SceneFacts]" = field(default_factory=dict, init=False, repr=False)
    """What has been found out about each picture, which never changes."""

    @property
    def images(self) -> Float[Tensor, "M 3 H W"]:
        assert self.scene.images is not None  # nothing is opened that was not seen
        return self.scene.images

    def facts(self, picture: int) -> "SceneFacts":
        """Found once for each picture."""
        if picture not in self.known:
            self.known[picture] = facts_of(self, picture)
        return self.known[picture]


def open_numbered(reader: Reader, scenes: NumberedScenes | None, number: int, pictures: int) -> Opened:
    """Let the model read the pictures of scene `number`; without scenes, of one that it imagines."""
    pictures = 1 if reader.single else pictures
    if scenes is None:
        return open_imagined(reader, number, pictures)
    if isinstance(scenes, SplitArrays):
        return open_stored(reader, scenes, number, pictures)
    fresh = fresh_scene(scenes, number, pictures, reader.device.type)
    scene = surest_first(reader.decompose(list(fresh.pictures.image[0]), warn=False))
    scene = replace(scene, photos=())  # no larger than it sees
    truth = scene_truth(fresh.pictures, reader.device)
    return Opened(f"Scene {number}", scene, rebuilt_views(scene), fresh.names, truth)


def open_stored(reader: Reader, split: SplitArrays, number: int, pictures: int) -> Opened:
    """A scene of a data set; numbers go round. Only what is stored of the truth is known."""
    scene_number = check_number(number) % len(split)
    first = FirstViews(picture_count(pictures, split.size.views))
    data = SceneDataset(split, views=first, device=reader.device.type, size=reader.size)
    scene = surest_first(reader.decompose(data.batch([scene_number]).image[0], warn=False))
    truth = data.truth([scene_number])
    known = truth if truth.scene_segment is not None else None
    names = tuple(f"true object {k + 1}" for k in range(split.size.slots))
    called = "" if split.scene_names is None else f": {split.scene_names[scene_number]}"
    title = f"Scene {scene_number} of {split.name}{called}"
    return Opened(title, scene, rebuilt_views(scene), names, known, scene.warning)


def open_imagined(reader: Reader, number: int, pictures: int) -> Opened:
    """A scene from the prior. Its pictures are read like any others, so nothing is known to be true of it."""
    check_number(number)
    dreamt = reader.prior(number, picture_count(pictures, MOST_PICTURES))
    images = torch.stack([view.image.clamp(0, 1) for view in rebuilt_views(dreamt)])
    scene = surest_first(reader.decompose(images, warn=False))
    return Opened(f"Imagined scene {number}", scene, rebuilt_views(scene))


def open_photos(reader: Reader, images: Pictured) -> Opened:
    """Let the model read a user's own pictures, already checked. They are kept as large as a screen shows them."""
    scene = surest_first(reader.decompose(images, warn=False))
    scene = replace(scene, photos=tuple(photo.reduced(SCREEN) for photo in scene.photos))
    return Opened("Your pictures", scene, rebuilt_views(scene), warning=scene.warning)


def rebuilt_views(scene: InferredScene) -> tuple[View, ...]:
    return tuple(scene.render_many(scene.views))


def scene_truth(pictures: Pictures, device: torch.device) -> SceneTruth:
    names = ("segment", "overlap", "shapes", "shadows", "depth_order", "camera", "num_objects")
    arrays: dict[str, Any] = {name: torch.from_numpy(getattr(pictures, name)).to(device) for name in names}
    mask = torch.ones(pictures.image.shape[:2], dtype=torch.bool, device=device)
    return SceneTruth(**arrays, view_mask=mask)


@dataclass(frozen=True)
class ObjectFact:
    """One object that the model found."""

    index: int
    sure: float
    """Probability that it is there."""
    name: str | None
    """The true object that it stands for; None where there is no truth, or none fits."""


@dataclass(frozen=True)
class PairFact:
    """Two found objects whose complete shapes meet in a picture: of such pairs alone a picture tells the order."""

    near: int
    far: int
    right: bool | None
    """None where there is no truth, or where the true objects do not meet."""


@dataclass(frozen=True)
class SceneFacts:
    picture: int
    found: int
    true_count: int | None
    """True objects of which a pixel is seen in at least one picture."""
    objects: tuple[ObjectFact, ...]
    """The surest first."""
    pairs: tuple[PairFact, ...]
    """In the picture that is asked about."""
    missed: tuple[str, ...]
    """True objects seen somewhere that no found object stands for."""
    scores: dict[str, float | None] | None
    """The eight metrics by name; None where there is no truth."""
    trusted: bool = True
    """False where the pictures are unlike what the model knows."""

    def to_json(self) -> dict[str, Any]:
        """Pictures and objects are counted from 1, as on the page."""
        return asdict(self) | {
            "picture": self.picture + 1,
            "objects": [asdict(fact) | {"index": fact.index + 1} for fact in self.objects],
            "pairs": [asdict(pair) | {"near": pair.near + 1, "far": pair.far + 1} for pair in self.pairs],
        }


def facts_of(opened: Opened, picture: int) -> SceneFacts:
    """Of the scene as it was inferred, seen from the viewpoint of one of its pictures."""
    scene, view, truth = opened.scene, opened.rebuilt[picture], opened.truth
    answer = decomposition_of(scene, opened.rebuilt)
    stands_for = {} if truth is None else matched(answer, truth)
    names = {k: opened.names[g] for k, g in stands_for.items()}
    visible = [] if truth is None else visible_objects(truth)
    return SceneFacts(
        picture=picture,
        found=scene.count,
        true_count=None if truth is None else len(visible),
        objects=tuple(ObjectFact(k, float(scene.presence[k]), names.get(k)) for k in scene.present()),
        pairs=tuple(
            PairFact(near, far, nearer(truth, picture, stands_for.get(near), stands_for.get(far)))
            for near, far in view.overlapping()
        ),
        missed=tuple(opened.names[g] for g in visible if g not in stands_for.values()),
        scores=None if truth is None else scores_of(answer, truth),
        trusted=opened.warning is None,
    )


def nearer(truth: SceneTruth | None, picture: int, g: int | None, other: int | None) -> bool | None:
    """Whether true object g stands before another one; None where that is unknown, or they do not meet."""
    if truth is None or g is None or other is None or truth.shapes is None or truth.depth_order is None:
        return None
    inside = truth.shapes[0, picture, [g, other]] >= COVERED
    order = truth.depth_order[0, picture]
    return bool(order[g] > order[other]) if bool(inside.all(0).any()) else None


def scores_of(answer: Decomposition, truth: SceneTruth) -> dict[str, float | None]:
    """In the convention "paper", for this one scene."""
    scores = score_scenes(answer, truth).paper()
    return {name: scores[name] for name in METRICS}


def visible_objects(truth: SceneTruth) -> list[int]:
    """True objects with at least one pixel in sight."""
    assert truth.segment is not None
    return objects_in(truth.segment)


def objects_in(segment: UInt8[Tensor, "*views H W"]) -> list[int]:
    return sorted(set(segment.flatten().tolist()) - {BACKGROUND})


def matched(answer: Decomposition, truth: SceneTruth) -> dict[int, int]:
    """Found object -> true object, by the matching of the metrics, where the two share at least one pixel."""
    assert truth.segment is not None
    strongest = answer.layer_masks[0].argmax(1) - 1
    pairs = enumerate(match(answer, truth)[0].tolist())
    return {k: g for g, k in pairs if k >= 0 and bool(torch.any((truth.segment[0] == g) & (strongest == k)))}
