"""GMIOO as a method: look, refine, compare at every stage."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.contract import FastTwin, Losses, Precision, Search, TrainableMethod, mapped
from viewslots.methods.fast.half import with_half_weights
from viewslots.methods.fast.norm import fuse_norms
from viewslots.methods.gmioo.compositing import composite, greedy_order, perceived_masks, surroundings
from viewslots.methods.gmioo.config import GmiooConfig
from viewslots.methods.gmioo.inference import BackgroundInference, ObjectInference
from viewslots.methods.gmioo.networks import ColourDecoder, Decoder, enlarge_channels_last, initialise
from viewslots.methods.gmioo.objective import stage_terms
from viewslots.methods.gmioo.rendering import Rendering
from viewslots.methods.gmioo.schedule import Annealing, GmiooSchedule
from viewslots.methods.gmioo.variables import (
    Background,
    Layers,
    Noise,
    ObjectNoise,
    Objects,
    Stage,
    at,
    joined,
    take,
)
from viewslots.methods.noise import Sampler
from viewslots.methods.schedules import Scalar
from viewslots.methods.single_view import PicturesOfScenes, mean_of_pictures
from viewslots.types import Decomposition, SceneBatch

HALF = (nn.Linear, nn.Conv2d, nn.LSTMCell)
"""Layers that compute with half-precision weights on a GPU."""


@dataclass(frozen=True, eq=False)
class GmiooAnswer(PicturesOfScenes):
    """What the last stage found. Objects of different views have nothing to do with one another."""

    stage: Stage
    """Of all views, one after another."""

    @property
    def object_codes(self) -> Float[Tensor, "B M K D"]:
        """What an object looks like in its box, and the box."""
        return self.codes(self.stage.objects.code.mu, self.stage.objects.box.mu)

    def decomposition(self) -> Decomposition:
        """Presence is the maximum over views, as in the per-view baseline. Absent objects have no complete shape."""
        objects, layers = self.stage.objects, self.stage.layers
        K = objects.presence.shape[1]
        nearest_first = torch.arange(K, 0, -1, device=self.view_mask.device, dtype=layers.shape.dtype)
        return Decomposition(
            reconstruction=self.views(self.stage.reconstruction),
            layer_masks=self.views(self.stage.masks),
            has_background=True,
            complete_shapes=self.views(layers.shape * objects.presence[:, :, None, None]),
            presence=self.most(objects.presence),
            presence_probability=self.most(objects.logit_zeta.sigmoid()),
            depth_order=nearest_first.expand(*self.view_mask.shape, K),
        )


class Gmioo(TrainableMethod[GmiooConfig], library_name="viewslots", tags=["object-centric-learning", "gmioo"]):
    """For single pictures: every view of a scene stands alone. Weights are drawn from `generator`, or from seed 0."""

    name = "gmioo"
    config_class = GmiooConfig
    schedule_class = GmiooSchedule
    terms = ("nll", "background", "box", "code", "nu", "presence", "guide")
    headline = ("nll", "box", "code", "presence")

    def __init__(self, config: GmiooConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.background_inference = BackgroundInference(
            image_size=config.image_size,
            stages=config.background_encoder,
            hidden=config.hidden,
            background_dim=config.background_dim,
        )
        self.object_inference = ObjectInference(
            image_size=config.image_size,
            glimpse_size=config.glimpse_size,
            stages=config.object_encoder,
            hidden=config.hidden,
            code_dim=config.code_dim,
        )
        self.rendering = Rendering(
            ColourDecoder(config.background_decoder, config.background_dim, config.background_average),
            ColourDecoder(config.appearance_decoder, config.code_dim, config.appearance_average),
            Decoder(config.shape_decoder, config.code_dim, 1),
            config.image_size,
            config.sigma_x,
        )
        initialise(self, generator or torch.Generator().manual_seed(0))

    @property
    def stages(self) -> int:
        """T: the first look and the refinements."""
        return 1 + self.config.refinements

    def draw_noise(self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None) -> Noise:
        (B, M), K = batch.image.shape[:2], self.chosen_slots(slots)
        T, config, source = self.stages, self.config, Sampler(generator, self.device)
        return Noise(
            background=source.normal(B, M, T, config.background_dim),
            objects=ObjectNoise(
                box=source.normal(B, M, T, K, 4),
                code=source.normal(B, M, T, K, config.code_dim),
                presence=source.logistic(B, M, T, K),
            ),
        )

    def annealed(self) -> Annealing:
        return Annealing(temperature_prs=self.config.temperature)

    def fast(self, precision: Precision) -> FastTwin:
        """Layers are used K times a step and small: casting their weights at every use would be a fifth of all work."""
        if self.device.type != "cuda" or precision != "bf16":
            return FastTwin(self)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        view, half = with_half_weights(self, (), HALF)
        return FastTwin(enlarge_channels_last(fuse_norms(view)), half)

    # Learning

    def forward(self, batch: SceneBatch, scheduled: Annealing, noise: Noise) -> Losses:
        """Means over stages and over a scene's real views."""
        image = batch.image.flatten(0, 1)
        stages = self.explain(image, noise, scheduled.temperature_prs)
        parts = [self.weighted_terms(stage, image, t, scheduled) for t, stage in enumerate(stages)]
        means = {name: torch.stack([part[name] for part in parts]).mean(0) for name in self.terms}
        terms = {name: mean_of_pictures(values, batch.view_mask) for name, values in means.items()}
        bound = torch.stack([values for name, values in terms.items() if name != "guide"]).sum(0)
        return Losses(minimised=bound + terms["guide"], comparable=bound, terms=terms)

    def weighted_terms(
        self, stage: Stage, image: Float[Tensor, "N 3 H W"], t: int, scheduled: Annealing
    ) -> dict[str, Float[Tensor, "N"]]:
        """The guide counts less at every refinement, and nothing at the last."""
        config = self.config
        terms = stage_terms(
            stage,
            image,
            sigma_x=config.sigma_x,
            alpha=config.alpha,
            scale_mean=config.scale_mean,
            scale_std=config.scale_std,
            shift_std=config.shift_std,
        )
        share = 1 - t / (self.stages - 1)
        return terms | {"guide": share * scheduled.weight_guide * terms["guide"]}

    # Inference

    def explain(self, image: Float[Tensor, "N 3 H W"], noise: Noise, temperature: Scalar | None) -> list[Stage]:
        """All stages of N pictures, each on its own. Without a temperature, presence is 0 or 1."""
        noise = mapped(noise, lambda values: values.flatten(0, 1))
        stages = [self.begin(image, at(noise, 0), temperature)]
        for t in range(1, self.stages):
            stages.append(self.refine(image, stages[-1], at(noise, t), temperature))
        return stages

    def begin(self, image: Float[Tensor, "N 3 H W"], noise: Noise, temperature: Scalar | None) -> Stage:
        """The background, then one object after another, each with a look at what those before it leave unexplained."""
        state, code = self.background_inference.begin(image)
        background = Background(state, code, self.rendering.background(code.sample(noise.background)))
        found: list[Objects] = []
        shown: list[Layers] = []
        main = None
        for k in range(noise.objects.presence.shape[1]):
            seen = torch.cat([image, *self.so_far(image, background, found, shown)], 1)
            main, objects = self.object_inference.begin(seen, main, at(noise.objects, k), temperature)
            found.append(mapped(objects, lambda values: values[:, None]))
        return self.composed(image, background, joined(found))

    @torch.no_grad()
    def so_far(
        self, image: Float[Tensor, "N 3 H W"], background: Background, found: list[Objects], shown: list[Layers]
    ) -> tuple[Float[Tensor, "N 3 H W"], Float[Tensor, "N 1 H W"]]:
        """The reconstruction by the objects found so far, and the background's mask. The latest joins those `shown`.

        Paper: whether objects are put into depth order here is not said.
        """
        if not found:
            return background.picture, torch.ones_like(background.picture[:, :1])
        shown.append(self.rendering.objects(image, found[-1].z_box, found[-1].z_code))
        layers, presence = joined(shown), torch.cat([one.presence for one in found], 1)
        order = greedy_order(layers.shape, layers.scaled_error, presence)
        masks = perceived_masks(take(layers.shape, order), take(presence, order))
        return composite(masks, background.picture, take(layers.appearance, order)), masks[:, :1]

    def refine(self, image: Float[Tensor, "N 3 H W"], stage: Stage, noise: Noise, temperature: Scalar | None) -> Stage:
        """The background and all objects at once, from what the stage before has found."""
        before, objects, layers = stage.background, stage.objects, stage.layers
        seen = torch.cat([image, stage.reconstruction, stage.masks[:, :1], before.picture], 1)
        state, code = self.background_inference.refine(seen, before.state)
        background = Background(state, code, self.rendering.background(code.sample(noise.background)))
        others, front = surroundings(objects.presence, before.picture, layers)
        around = torch.cat([image[:, None].expand_as(others), others, front], 2)
        found = self.object_inference.refine(around, objects, layers, noise.objects, temperature)
        return self.composed(image, background, found)

    def composed(self, image: Float[Tensor, "N 3 H W"], background: Background, objects: Objects) -> Stage:
        """Objects as layers, in depth order with all that belongs to them."""
        layers = self.rendering.objects(image, objects.z_box, objects.z_code)
        order = greedy_order(layers.shape, layers.scaled_error, objects.presence)
        objects, layers = mapped((objects, layers), lambda values: take(values, order))
        masks = perceived_masks(layers.shape, objects.presence)
        return Stage(background, objects, layers, masks, composite(masks, background.picture, layers.appearance))

    @torch.no_grad()
    def infer(
        self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None, search: Search | None = None
    ) -> "GmiooAnswer":
        self.check(batch)
        self.check_search(search)
        noise = self.draw_noise(batch, generator, slots)
        return GmiooAnswer(batch.view_mask, self.explain(batch.image.flatten(0, 1), noise, None)[-1])
