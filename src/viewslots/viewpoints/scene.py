"""Infer once, render many: a model that reads pictures, the scene it inferred, what one viewpoint shows of it."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.errors import UserError
from viewslots.methods.inputs import check_slots, check_views
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.noise import Source
from viewslots.methods.ocloc.search import Care, careful, careful_views
from viewslots.runs import HUB, Which, find_run, load_run
from viewslots.types import Latents, Posterior, Rendering, SceneBatch
from viewslots.viewpoints.likeness import Typical, read_typical
from viewslots.viewpoints.photos import Pictured, read_pictures

PRESENT = 0.5
"""An object is present from this probability on."""
MOST_SLOTS = 64
"""Memory grows with them; no scene of ours has more objects."""
STARTS = 6
"""Random starts for an answer that people look at, of a model that takes no care by itself."""
VIEWS_AT_ONCE = 8
"""Bounds the memory of `render_many`; larger batches are not faster on a CPU."""


def load(source: str | Path, *, device: str = "cpu", which: Which = "best") -> "Reader":
    """A model to look through: the name of a shipped one, a run folder, a folder written by save_pretrained."""
    model = load_run(source, which=which).requires_grad_(False)  # refinement follows codes; weights would be in its way
    from_hub = isinstance(source, str) and source.startswith(HUB)
    return Reader(model.to(device), str(source), None if from_hub else read_typical(find_run(source)))


@dataclass(frozen=True, eq=False)
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

    def nearest_first(self) -> list[int]:
        """The shown objects, from near to far."""
        return sorted(self.shown, key=lambda k: -float(self.order[k]))

    def segment(self) -> Tensor:
        """[H, W] int64: the layer that is seen most at each pixel; 0 is the background, k + 1 object k."""
        return self.masks.argmax(0)

    def x_ray(self) -> Float[Tensor, "3 H W"]:
        """The scene as if made of glass: where complete shapes overlap they show alike, whichever is nearer."""
        cover = self.complete.sum(0)
        objects = (self.complete[:, None] * self.appearance).sum(0) / cover.clamp(min=1)
        return objects + (1 - cover).clamp(min=0) * self.background


@dataclass(frozen=True, eq=False)
class Reader:
    """A model in evaluation mode that answers about one scene at a time, repeatably."""

    model: Ocloc
    name: str = ""
    typical: Typical | None = None
    """How well it rebuilds the kind of pictures it was trained on, where that was measured."""

    def __post_init__(self) -> None:
        if not self.model.knows_viewpoints:
            raise UserError(
                f"{self.name or 'this model'}: the per-view baseline knows no scene apart from a view, "
                "so there is no camera to turn; take a model of method ocloc"
            )
        self.model.eval()

    @property
    def size(self) -> int:
        """Side of the square pictures."""
        return self.model.config.image_size

    @property
    def slots(self) -> int:
        """How many objects it was trained to look for."""
        return self.model.config.slots

    @property
    def view_dim(self) -> int:
        return self.model.config.view_dim

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def care(self) -> Care:
        """How scenes are answered: as the model itself does, and never as carelessly as in the paper."""
        return self.model.care or Care()

    @property
    def starts(self) -> int:
        """How many random starts are tried for what people look at."""
        return STARTS if self.model.care is None else self.model.care.starts

    @torch.no_grad()
    def decompose(
        self, images: Pictured, *, seed: int = 0, slots: int | None = None, starts: int | None = None
    ) -> "InferredScene":
        """The scene behind pictures (files, PIL pictures, arrays, or a tensor [M,3,H,W]) taken from unknown viewpoints.

        The seed decides where the slots start (line 4 of Algorithm 1). All else is fixed: means of the latents, and as
        background the slot with the largest pi instead of a sample. Objects that are not worth their description, such
        as a second copy of one, are absent. With several starts (default: as many as the model itself takes), those of
        `seed` and of the seeds after it are tried, and the one that describes the pictures most shortly goes on, to
        further looks and refinement if the model takes that care. None of this needs the truth.
        """
        care = self.care if starts is None else replace(self.care, starts=starts)
        batch, slots = self.batch(images), self.chosen_slots(slots)
        self.model.check(batch)
        seeds = range(seed, seed + care.draws)
        noises = [self.model.draw_latent_noise(batch, seeded(one), slots) for one in seeds]
        posterior = careful(self.model, batch, noises, self.model.annealed(), care)
        return InferredScene(
            reader=self,
            images=batch.image[0],
            views=posterior.mu_view[0],
            background=posterior.mu_bck[0],
            objects=posterior.mu_attr[0],
            presence=posterior.kappa[0],
            posterior=posterior,
        )

    @torch.no_grad()
    def prior(self, seed: int, views: int = 4, slots: int | None = None) -> "InferredScene":
        """A whole scene from the prior: objects, background, presences (0 or 1) and viewpoints that nobody has seen."""
        M, K = check_views(views), self.chosen_slots(slots)
        latents = self.model.generation.prior(1, M, K, self.model.config.alpha, Source(seeded(seed), self.device))
        return InferredScene(
            reader=self,
            images=None,
            views=latents.z_view[0],
            background=latents.z_bck[0],
            objects=latents.z_attr[0],
            presence=latents.z_prs[0],
        )

    def chosen_slots(self, slots: int | None) -> int:
        if slots is not None and slots > MOST_SLOTS:
            raise UserError(f"at most {MOST_SLOTS} objects can be looked for, not {slots}")
        return check_slots(self.slots if slots is None else slots)

    def batch(self, images: Pictured) -> SceneBatch:
        pictures = read_pictures(images, self.size).to(self.device)
        return SceneBatch(pictures[None], torch.ones(1, len(pictures), dtype=torch.bool, device=self.device))


@dataclass(frozen=True, eq=False)
class InferredScene:
    """A scene as its reader understands it. Edits make new ones with `dataclasses.replace`."""

    reader: Reader = field(repr=False)
    images: Float[Tensor, "M 3 H W"] | None = field(repr=False)
    """What was seen; None for a scene from the prior."""
    views: Float[Tensor, "M Dview"]
    """Means of z_view, a row for each picture."""
    background: Float[Tensor, "Dbck"] = field(repr=False)
    objects: Float[Tensor, "K Dattr"] = field(repr=False)
    presence: Float[Tensor, "K"]
    """Probabilities; present if >= 0.5."""
    posterior: Posterior | None = field(default=None, repr=False)
    """All that was inferred from the pictures; edits leave it as it is."""

    def present(self) -> list[int]:
        return [k for k, probability in enumerate(self.presence.tolist()) if probability >= PRESENT]

    @property
    def count(self) -> int:
        return len(self.present())

    def render(self, view: Float[Tensor, "Dview"] | None = None, *, shown: Sequence[int] | None = None) -> View:
        """What a viewpoint shows (default: the first one) of the objects in `shown` (default: the present ones)."""
        view = self.views[0] if view is None else view
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
        model, decoded = self.reader.model, list(shown) or [0]
        presence = torch.full((1, len(decoded)), torch.inf if shown else -torch.inf, device=views.device)
        latents = Latents(views[None], self.background[None], self.objects[decoded][None], presence)
        layers = model.generation(latents)  # model.render, but that the background is known before shadows fall on it
        rendering = model.overlay(layers, latents, layers.logit_shp, layers.appearance, model.annealed())
        return (self._view(rendering, layers.background[0, v], v, shown) for v in range(len(views)))

    def _view(self, rendering: Rendering, bare: Float[Tensor, "3 H W"], v: int, shown: tuple[int, ...]) -> View:
        K, S = len(self.objects), list(shown)

        def spread(values: Tensor, fill: float = 0.0) -> Tensor:
            return values.new_full((K, *values.shape[1:]), fill).index_copy(0, index, values[: len(S)])

        index = torch.tensor(S, dtype=torch.long, device=rendering.order.device)
        perceived = rendering.perceived[0, v]
        return View(
            image=rendering.reconstruction[0, v],
            masks=torch.cat([perceived[:1], spread(perceived[1:])]),
            complete=spread(rendering.logit_shp[0, v].sigmoid()),
            appearance=spread(rendering.appearance[0, v]),
            background=rendering.background[0, v],
            bare=bare,
            order=spread(rendering.order[0, v], -torch.inf),
            shown=shown,
        )

    @torch.no_grad()
    def estimate(self, images: Pictured, *, seed: int = 0) -> Float[Tensor, "V Dview"]:
        """Viewpoints of further pictures of this scene (appendix 'Viewpoint Estimation').

        The objects are those that were inferred: edits since then do not matter, as they do not turn the camera.
        """
        if self.posterior is None:
            raise UserError("a scene from the prior was never seen, so there are no further pictures of it")
        reader = self.reader
        batch = reader.batch(images)
        slots = self.posterior.mu_attr.shape[1]
        noise = reader.model.draw_latent_noise(batch, seeded(seed), slots)
        found = careful_views(reader.model, batch, self.posterior, noise, reader.model.annealed(), reader.care)
        return found.mu_view[0]


def seeded(seed: int) -> torch.Generator:
    """A CPU generator, whose numbers are the same for a model on any device."""
    if not 0 <= seed < 2**63:
        raise UserError(f"a seed is a whole number from 0 to 2^63 - 1, not {seed}")
    return torch.Generator().manual_seed(seed)
