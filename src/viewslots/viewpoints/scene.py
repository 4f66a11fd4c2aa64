"""Infer once, render many: a model that reads pictures, the scene it inferred, what one viewpoint shows of it."""

import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.errors import UserError, require_counts
from viewslots.methods.contract import (
    LayeredViews,
    SceneAnswer,
    SceneCodes,
    SceneMethod,
    Search,
    TrainableMethod,
    changed_search,
    searched_in_words,
)
from viewslots.methods.inputs import check_slots, check_views
from viewslots.runs import Model, Which, knows_one_view, load_run
from viewslots.types import PRESENT, Decomposition, SceneBatch, concatenated, shapes_only
from viewslots.viewpoints.answers import Answers, Scenes, parts_of, scene_batch
from viewslots.viewpoints.familiarity import Familiarity, Typical, familiarity_of, typical_of
from viewslots.viewpoints.photos import Photo, Pictured, read_photos, read_pictures

MOST_SLOTS = 64
"""Memory grows with them; no scene of ours has more objects."""
VIEWS_AT_ONCE = 8
"""Bounds the memory of `render_many`; larger batches are not faster on a CPU."""


class UnfamiliarPictures(UserWarning):
    """Pictures are unlike those that a model was trained on."""


def load(source: str | Path, *, device: str = "cpu", which: Which = "best") -> "Reader":
    """A model to look through: the name of a shipped one, a run folder, a folder written by save_pretrained."""
    model = load_run(source, which=which).requires_grad_(False)  # refinement follows codes; weights would be in its way
    return reader_of(model.to(device), source)


def reader_of(model: Model, source: str | Path) -> "Reader":
    """With all that the place of a model tells of it."""
    return Reader(model, str(source), typical_of(source), single=knows_one_view(model, source))


@dataclass(frozen=True, eq=False, repr=False)
class View:
    """What one viewpoint shows. Index k is object k of the scene; an object that is not shown is zero everywhere."""

    image: Float[Tensor, "3 H W"]
    """Not clamped: a colour may leave [0, 1] by a little."""
    masks: Float[Tensor, "L H W"]
    """Perceived shapes, background first: layer k + 1 is object k. They sum to one."""
    complete: Float[Tensor, "K H W"]
    """Complete shapes, hidden parts included."""
    appearance: Float[Tensor, "K 3 H W"]
    """Colours of each object, also where it is hidden or has no shape."""
    background: Float[Tensor, "3 H W"]
    """Also where objects hide it; of a model that knows shadows, with those of the shown objects."""
    bare: Float[Tensor, "3 H W"]
    """The background as if there were no objects: without their shadows."""
    order: Float[Tensor, "K"]
    """Larger is nearer; -inf for an object that is not shown."""
    shown: tuple[int, ...]

    __repr__ = shapes_only

    def nearest_first(self) -> list[int]:
        """The shown objects, from near to far."""
        return sorted(self.shown, key=lambda k: -float(self.order[k]))

    def overlapping(self) -> list[tuple[int, int]]:
        """Pairs (near, far) of shown objects whose complete shapes meet: of these alone a picture tells the order."""
        inside = self.complete >= 0.5
        nearest = self.nearest_first()
        pairs = [(near, far) for place, near in enumerate(nearest) for far in nearest[place + 1 :]]
        return [(near, far) for near, far in pairs if bool((inside[near] & inside[far]).any())]

    def segment(self) -> Tensor:
        """[H, W] int64: the layer that is seen most at each pixel; 0 is the background, k + 1 object k."""
        return self.masks.argmax(0)

    def x_ray(self) -> Float[Tensor, "3 H W"]:
        """The scene as if made of glass: where complete shapes overlap they show alike, whichever is nearer."""
        cover = self.complete.sum(0)
        objects = (self.complete[:, None] * self.appearance).sum(0) / cover.clamp(min=1)
        return objects + (1 - cover).clamp(min=0) * self.background


@dataclass(frozen=True, eq=False, repr=False)
class Reader:
    """A model in evaluation mode that answers repeatably: about one scene, which can then be turned and edited, or
    about many at once."""

    model: TrainableMethod[Any]
    name: str = ""
    typical: Typical | None = None
    """How well it rebuilds the kind of pictures it was trained on, where that was measured."""
    single: bool = False
    """Whether several pictures are not views of one scene to it (`knows_one_view`)."""

    def __post_init__(self) -> None:
        self.model.eval()

    def __repr__(self) -> str:
        height, width = self.size
        return f"Reader({self.name!r}: {self.model.name}, {height}x{width}, {self.slots} slots, on {self.device})"

    @property
    def scenes(self) -> SceneMethod:
        """The model, as one whose scenes can be edited and turned."""
        if not isinstance(self.model, SceneMethod):
            raise UserError(
                f"{self.name or 'this model'}: {self.model.name} knows no scene apart from its views, "
                "so it cannot be turned or edited; `viewslots figures` draws its layers"
            )
        return self.model

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the pictures."""
        return self.model.image_size

    @property
    def slots(self) -> int:
        """How many objects it was trained to look for."""
        return self.model.slots

    @property
    def view_dim(self) -> int:
        return self.scenes.view_dim

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def search(self) -> Search | None:
        """How scenes are answered unless told otherwise: as they are scored."""
        return self.model.default_search

    def decompose(
        self,
        images: Pictured,
        *,
        seed: int = 0,
        slots: int | None = None,
        starts: int | None = None,
        search: Search | None = None,
        warn: bool = True,
    ) -> "InferredScene":
        """The scene behind pictures (files, PIL pictures, arrays, or a tensor [M,3,H,W]) taken from unknown viewpoints.

        The answer is found as `evaluate` finds it: as the method does by default, or by `search`. `starts` changes the
        number of random starts alone; 0 gives the plain answer of the method's paper. The seed decides all randomness.
        Pictures unlike those that the model was trained on are told by a Python warning, and by `.warning`; `warn`
        False leaves out the former, and the time that it takes.
        """
        scene = self.inferred(images, seed, slots, changed_search(search or self.search, starts=starts))
        if warn and scene.warning is not None:
            warnings.warn(scene.warning, UnfamiliarPictures, stacklevel=2)
        return scene

    @torch.no_grad()
    def infer(
        self,
        scenes: Scenes,
        *,
        seed: int = 0,
        slots: int | None = None,
        starts: int | None = None,
        search: Search | None = None,
        at_once: int = 20,
    ) -> Answers:
        """Many scenes, of any method: masks, codes and counts, on the device of the model.

        Arguments as those of `decompose`; `at_once` scenes share a pass, which bounds the memory. Which random numbers
        a scene gets depends on the scenes before it, so another order or `at_once` may give other answers.
        """
        require_counts({"at_once": at_once})
        batch, generator = scene_batch(scenes, self.size), seeded(seed)
        self.refuse_views(batch)
        asked = changed_search(search or self.search, starts=starts)
        if asked is not None and not self.model.searches:
            raise UserError(
                f"{self.name or 'this model'}: {self.model.name} gives plain answers alone; leave out starts"
            )
        parts = []
        for part in parts_of(batch, at_once):
            moved = part.to(self.device)
            parts.append(Answers.of(self.model.infer(moved, generator, self.chosen_slots(slots), asked), moved))
        return concatenated(parts)

    @torch.no_grad()
    def inferred(self, images: Pictured, seed: int, slots: int | None, search: Search | None) -> "InferredScene":
        """`decompose` by this very search; None is the plain answer."""
        _ = self.scenes  # refuses methods that know none
        photos = () if isinstance(images, Tensor) else tuple(read_photos(images, self.size))
        batch = self.batch(photos or images)
        self.refuse_views(batch)
        answer = self.model.infer(batch, seeded(seed), self.chosen_slots(slots), search)
        assert isinstance(answer, SceneAnswer)
        scene = InferredScene(self, batch.image[0], **vars(answer.scene_codes(0)), answer=answer, photos=photos)
        return replace(scene, as_read=replace(scene, photos=()))  # which may be large

    @torch.no_grad()
    def prior(self, seed: int, views: int = 4, slots: int | None = None) -> "InferredScene":
        """A whole scene from the prior: objects, background, presences (0 or 1) and viewpoints that nobody has seen."""
        drawn = self.scenes.sample_codes(check_views(views), self.chosen_slots(slots), seeded(seed))
        return InferredScene(self, None, **vars(drawn))

    def chosen_slots(self, slots: int | None) -> int:
        if slots is not None and slots > MOST_SLOTS:
            raise UserError(f"at most {MOST_SLOTS} objects can be looked for, not {slots}")
        return check_slots(self.slots if slots is None else slots)

    def refuse_views(self, batch: SceneBatch) -> None:
        """Several, of a model of single pictures."""
        if self.single and (count := batch.image.shape[1]) > 1:
            raise UserError(
                f"{self.name or 'this model'}: trained on single pictures, so it cannot take {count} for views of one "
                "scene; ask for one picture at a time"
            )

    def batch(self, images: Pictured) -> SceneBatch:
        pictures = read_pictures(images, self.size).to(self.device)
        return SceneBatch(pictures[None], torch.ones(1, len(pictures), dtype=torch.bool, device=self.device))


@dataclass(frozen=True, eq=False, repr=False)
class InferredScene:
    """A scene as its reader understands it. Edits make new ones with `dataclasses.replace`."""

    reader: Reader = field(repr=False)
    images: Float[Tensor, "M 3 H W"] | None = field(repr=False)
    """What was seen; None for a scene from the prior."""
    views: Float[Tensor, "M Dview"]
    """Codes of the viewpoints, a row for each picture."""
    background: Float[Tensor, "Dbck"] = field(repr=False)
    objects: Float[Tensor, "K Dattr"] = field(repr=False)
    presence: Float[Tensor, "K"]
    """Probabilities; present if >= 0.5."""
    answer: SceneAnswer | None = field(default=None, repr=False)
    """All that was inferred from the pictures; edits leave it as it is."""
    photos: tuple[Photo, ...] = field(default=(), repr=False)
    """The pictures as they were given, with the way back to their own pixels; none for tensors."""
    as_read: "InferredScene | None" = field(default=None, repr=False)
    """The scene before all edits."""

    def __repr__(self) -> str:
        doubt = "" if self.warning is None else ", from unfamiliar pictures"
        return f"InferredScene({self.count} objects: {self.present()}, {len(self.views)} viewpoints{doubt})"

    @cached_property
    def familiarity(self) -> Familiarity | None:
        """How unlike those that the model was trained on the pictures are, whatever was edited since; None where
        nothing was measured for the model. The pictures are drawn for it, so it waits until somebody asks."""
        return familiarity_of(self) if self.as_read is None else self.as_read.familiarity

    @property
    def warning(self) -> str | None:
        """Why not to trust it, if the pictures are unfamiliar."""
        return None if self.familiarity is None else self.familiarity.warning

    def present(self) -> list[int]:
        return [k for k, probability in enumerate(self.presence.tolist()) if probability >= PRESENT]

    @property
    def count(self) -> int:
        return len(self.present())

    def render(self, view: Float[Tensor, "Dview"] | None = None, *, shown: Sequence[int] | None = None) -> View:
        """What a viewpoint shows (default: the first one) of the objects in `shown` (default: the present ones)."""
        view = self.views[0] if view is None else torch.as_tensor(view)
        if view.shape != self.views.shape[1:]:
            raise UserError(f"a viewpoint of this model has {self.views.shape[1]} numbers, not {list(view.shape)}")
        return self.render_many(view[None], shown=shown)[0]

    def render_many(self, views: Float[Tensor, "V Dview"], *, shown: Sequence[int] | None = None) -> list[View]:
        """`render` for several viewpoints."""
        if views.dim() != 2 or views.shape[1] != self.views.shape[1]:
            raise UserError(f"viewpoints must have shape [V, {self.views.shape[1]}], not {list(views.shape)}")
        if not bool(torch.isfinite(views).all()):
            raise UserError("viewpoints must be finite; these hold NaN or infinity")
        chosen = self.check_objects(self.present() if shown is None else shown)
        views = views.to(self.views)
        parts = (self._rendered(part, chosen) for part in torch.split(views, VIEWS_AT_ONCE) if len(part))
        return list(itertools.chain.from_iterable(parts))

    def check_objects(self, chosen: Sequence[int]) -> tuple[int, ...]:
        """Indices of objects, each once, in order."""
        if odd := [k for k in chosen if not 0 <= k < len(self.objects)]:
            raise UserError(f"there is no object {odd[0]}; objects of this scene are 0 to {len(self.objects) - 1}")
        return tuple(sorted(set(map(int, chosen))))

    @torch.no_grad()
    def _rendered(self, views: Float[Tensor, "V Dview"], shown: tuple[int, ...]) -> Iterator[View]:
        """Only shown objects are decoded. Where there are none, one that is absent stands in, since K is at least 1."""
        decoded = list(shown) or [0]
        presence = torch.full((len(decoded),), float(bool(shown)), device=views.device)
        codes = SceneCodes(views, self.background, self.objects[decoded], presence)
        layered = self.reader.scenes.render_codes(codes)
        return (self._view(layered, v, shown) for v in range(len(views)))

    def _view(self, layered: LayeredViews, v: int, shown: tuple[int, ...]) -> View:
        K, S = len(self.objects), list(shown)

        def spread(values: Tensor, fill: float = 0.0) -> Tensor:
            return values.new_full((K, *values.shape[1:]), fill).index_copy(0, index, values[: len(S)])

        index = torch.tensor(S, dtype=torch.long, device=layered.order.device)
        return View(
            image=layered.image[v],
            masks=torch.cat([layered.masks[v, :1], spread(layered.masks[v, 1:])]),
            complete=spread(layered.complete[v]),
            appearance=spread(layered.appearance[v]),
            background=layered.background[v],
            bare=layered.bare[v],
            order=spread(layered.order[v], -torch.inf),
            shown=shown,
        )

    @torch.no_grad()
    def estimate(self, images: Pictured, *, seed: int = 0) -> Float[Tensor, "V Dview"]:
        """Viewpoints of further pictures of this scene (appendix 'Viewpoint Estimation').

        The objects are those that were inferred: edits since then do not matter, as they do not turn the camera.
        """
        if self.answer is None:
            raise UserError("a scene from the prior was never seen, so there are no further pictures of it")
        return self.answer.new_views(self.reader.batch(images), seeded(seed)).view_codes[0]


def decomposition_of(scene: InferredScene, views: Sequence[View]) -> Decomposition:
    """What is shown of one scene, as the metrics take it: `views` are what it shows from the viewpoints of its
    pictures."""

    def stacked(name: str) -> Tensor:
        return torch.stack([getattr(view, name) for view in views])[None]

    return Decomposition(
        reconstruction=stacked("image"),
        layer_masks=stacked("masks"),
        has_background=True,
        complete_shapes=stacked("complete"),
        presence=scene.presence[None],
        presence_probability=scene.presence[None],
        depth_order=stacked("order"),
    )


def search_words(search: Search | None) -> str:
    return "plain (one pass)" if search is None else searched_in_words(vars(search))


def seeded(seed: int) -> torch.Generator:
    """A CPU generator, whose numbers are the same for a model on any device."""
    if not 0 <= seed < 2**63:
        raise UserError(f"a seed is a whole number from 0 to 2^63 - 1, not {seed}")
    return torch.Generator().manual_seed(seed)
