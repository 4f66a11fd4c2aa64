"""What a method is to the rest of the package.

A method infers a scene once and is then asked many times: `infer` gives an `Answer`. A method that learns is a
`TrainableMethod`; training, validation, checkpoints and run folders know no more of it than stands here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from viewslots.errors import UserError
from viewslots.methods.config import Count, CountOr0, Most, Whole, check_fields
from viewslots.methods.inputs import check_batch, check_slots
from viewslots.methods.pretrained import Config, Pretrained
from viewslots.methods.schedules import Optimisation, Schedule, Scheduled
from viewslots.types import Decomposition, SceneBatch, sides

Precision = Literal["bf16", "fp32"]
Gather = Callable[[Tensor], Tensor]
"""Joins a tensor of this process with those of all others that train the same model."""

GradientSteps = Annotated[Whole, Most(10**4)]


@dataclass(frozen=True)
class Search:
    """How far an answer is searched for at test time, with the weights as they are.

    Where None stands in its place, a method gives its plain answer: one pass, as its paper has it.
    """

    starts: Count = 1
    """Random starts of the inference, of which the one with the shortest description goes on."""
    looks: CountOr0 = 0
    """Further looks at what is left of the pictures when all is taken away that was found and explains its place. The
    first one also asks what the other starts found."""
    refinement: GradientSteps = 0
    """Gradient steps on the codes, after the starts and after every further look."""
    view_refinement: GradientSteps = 30
    """Gradient steps on the viewpoints of further pictures: few numbers, which inference alone leaves rough."""
    spare: Annotated[Whole, Most(64)] = 0
    """Slots of each start beyond those of the answer: what no slot takes up is missed. Of the objects that they find,
    the answer has those that are worth most."""

    section = "search"

    def __post_init__(self) -> None:
        check_fields(self)

    def slots_of_draws(self, slots: int) -> list[int]:
        """How many slots there are each time that inference begins anew, from a noise of its own: in the starts, with
        the spare ones, then in the further looks."""
        return [slots + self.spare] * self.starts + [slots] * self.looks


COUNTED = {"starts": "start", "spare": "spare slot", "looks": "further look", "refinement": "gradient step"}
"""What is counted in a search, in words."""


def searched_in_words(search: Mapping[str, Any]) -> str:
    """As in "searched with 4 starts and 1 further look"; from the fields of a Search. Older results lack some."""
    counts = [(search.get(name, int(name == "starts")), word) for name, word in COUNTED.items()]
    words = [f"{count} {word}{'s' * (count != 1)}" for count, word in counts if count]
    return f"searched with {' and '.join([', '.join(words[:-1]), words[-1]] if len(words) > 1 else words)}"


def changed_search(default: Search | None, **changes: int | None) -> Search | None:
    """A method's own search with other values, where they are given; `starts` 0 alone asks for the plain answer."""
    given = {name: value for name, value in changes.items() if value is not None}
    if given == {"starts": 0}:
        return None
    return replace(default or Search(), **given) if given else default


@runtime_checkable
class Answer(Protocol):
    """What one inference found in a batch of scenes."""

    def decomposition(self) -> Decomposition: ...


@runtime_checkable
class NewViewsAnswer(Answer, Protocol):
    """An answer that can show its scenes from elsewhere."""

    def new_views(self, batch: SceneBatch, generator: torch.Generator) -> Answer:
        """The same scenes in further pictures, of which the viewpoints alone are inferred, or read from `camera`."""
        ...


@runtime_checkable
class ViewpointAnswer(NewViewsAnswer, Protocol):
    """An answer that infers viewpoints apart from objects."""

    @property
    def view_codes(self) -> Float[Tensor, "B M D"]:
        """One code a view: the mean of its posterior."""
        ...

    def new_views(self, batch: SceneBatch, generator: torch.Generator) -> "ViewpointAnswer": ...


@runtime_checkable
class ObjectCodesAnswer(Answer, Protocol):
    """An answer that has a code of every object; any answer may have them."""

    @property
    def object_codes(self) -> Float[Tensor, "B *M K D"]:
        """All that is found of each object but its masks, in the order of the object layers: the mean of a posterior
        where there is one. With an axis of views where slots of different views have nothing to do with one another."""
        ...


@dataclass(frozen=True)
class SceneCodes:
    """One scene as codes that can be edited and seen from anywhere."""

    views: Float[Tensor, "M Dview"]
    background: Float[Tensor, "Dbck"]
    objects: Float[Tensor, "K Dattr"]
    presence: Float[Tensor, "K"]
    """Probabilities, or 0 and 1; present from one half on."""


@dataclass(frozen=True)
class LayeredViews:
    """What V viewpoints show of the objects that are asked for, in their order."""

    image: Float[Tensor, "V 3 H W"]
    masks: Float[Tensor, "V L H W"]
    """Perceived shapes, background first."""
    complete: Float[Tensor, "V K H W"]
    appearance: Float[Tensor, "V K 3 H W"]
    background: Float[Tensor, "V 3 H W"]
    """With the shadows of these objects, if the method knows shadows."""
    bare: Float[Tensor, "V 3 H W"]
    """Without them."""
    order: Float[Tensor, "V K"]
    """Larger is nearer."""


@runtime_checkable
class SceneAnswer(ViewpointAnswer, Protocol):
    """An answer whose scenes can be edited and turned."""

    def scene_codes(self, scene: int) -> SceneCodes: ...


class Method(Protocol):
    """Anything that decomposes scenes."""

    name: ClassVar[str]
    """Its key in the registry."""
    needs_camera: ClassVar[bool]
    """Whether batches must carry cameras."""
    shows_new_views: ClassVar[bool]
    """Whether its answers are NewViewsAnswers."""
    has_viewpoints: ClassVar[bool]
    """Whether they are ViewpointAnswers."""
    searches: ClassVar[bool]
    """Whether `infer` can take a Search."""

    @property
    def default_search(self) -> Search | None:
        """How it answers unless told otherwise: the same in what is scored and in what is shown."""
        ...

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of the pictures it takes; None: any."""
        ...

    @property
    def slots(self) -> int | None:
        """How many objects it was trained to look for; None: it must be told."""
        ...

    def infer(
        self,
        batch: SceneBatch,
        generator: torch.Generator,
        slots: int | None = None,
        search: Search | None = None,
    ) -> Answer:
        """One answer for every scene. `slots`: how many objects it may find; `search` None: its plain answer."""
        ...


@runtime_checkable
class SceneMethod(Protocol):
    """A method whose scenes can be edited and seen from new viewpoints: its answers are SceneAnswers."""

    @property
    def view_dim(self) -> int: ...

    def render_codes(self, codes: SceneCodes) -> LayeredViews:
        """All viewpoints and all objects of `codes`, in their order, each as present as it says."""
        ...

    def sample_codes(self, views: int, slots: int, generator: torch.Generator) -> SceneCodes:
        """A whole scene from the prior."""
        ...


@dataclass(frozen=True)
class Losses:
    """What a training step answers, scene by scene."""

    minimised: Float[Tensor, "B"]
    """With the weights of the schedule."""
    comparable: Float[Tensor, "B"]
    """Without them: what validation compares over steps and runs."""
    terms: dict[str, Float[Tensor, "B"]]
    """Named parts for people to look at, in the order of TrainableMethod.terms."""


@runtime_checkable
class WeightTwins(Protocol):
    """Copies of weights in another precision, on which a pass is computed."""

    def refresh(self) -> None:
        """Before a pass: the copies follow the weights."""
        ...

    def collect(self) -> None:
        """After the backward pass: gradients of the copies become those of the weights."""
        ...


@dataclass(frozen=True)
class FastTwin:
    """The same function of the same parameters, computed faster."""

    module: nn.Module
    weights: WeightTwins | None = None


C = TypeVar("C", bound=Config)


class TrainableMethod(nn.Module, Pretrained[C], ABC):
    """A method with parameters, built as KIND(config, generator): the generator draws its first weights.

    A pass is a deterministic function of (batch, scheduled values, noise). A subclass writes `draw_noise`, `forward`
    and `infer`; the rest has defaults. Validation and `infer` run in evaluation mode under `no_grad`, never in
    inference mode, so a method may enable gradients for itself.
    """

    name: ClassVar[str]
    schedule_class: ClassVar[type[Schedule]] = Schedule
    optimisation_class: ClassVar[type[Optimisation]] = Optimisation
    terms: ClassVar[tuple[str, ...]]
    """Names of `Losses.terms`."""
    headline: ClassVar[tuple[str, ...]] = ()
    """Those that a line of progress shows; all, if it names none."""
    needs_camera: ClassVar[bool] = False
    shows_new_views: ClassVar[bool] = False
    has_viewpoints: ClassVar[bool] = False
    searches: ClassVar[bool] = False
    """Whether `infer` can take a Search."""
    capturable: ClassVar[bool] = True
    """Whether a step may become one CUDA graph: fixed shapes, and no look at a value on the host."""
    config: C

    @property
    def default_search(self) -> Search | None:
        """None: one pass."""
        return None

    @abstractmethod
    def draw_noise(self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None) -> Any:
        """All randomness of one pass over a batch of this size: a dataclass of tensors, whose first axis counts scenes
        or things that belong to scenes."""

    @abstractmethod
    def forward(self, batch: SceneBatch, scheduled: Any, noise: Any) -> Losses:
        """Nothing is checked here, since a check waits for the device: whoever trains calls `check` once."""

    def annealed(self) -> Any:
        """The scheduled values for use after training, under which losses compare."""
        return Scheduled()

    @abstractmethod
    def infer(
        self,
        batch: SceneBatch,
        generator: torch.Generator,
        slots: int | None = None,
        search: Search | None = None,
    ) -> Answer: ...

    @classmethod
    def sized(cls, config: C, height: int, width: int) -> C:
        """The config for pictures of another size than it was made for, or as near to it as the networks come. A method
        that has one size only keeps it: pictures are then brought to that."""
        return config

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the pictures it takes."""
        return sides(self.config.image_size)

    @property
    def slots(self) -> int:
        """How many objects it was trained to look for."""
        return self.config.slots

    def check(self, batch: SceneBatch) -> None:
        """One clear error for pictures that it cannot take."""
        check_batch(batch, self.image_size, next(self.parameters()).dtype)
        if self.needs_camera and batch.camera is None:
            raise UserError(f"{self.name} must be told the cameras, and these pictures come without")

    def chosen_slots(self, slots: int | None) -> int:
        """As many as are asked for; None: as trained."""
        return check_slots(self.slots if slots is None else slots)

    def check_search(self, search: Search | None) -> None:
        if search is not None and not self.searches:
            raise UserError(f"{self.name} answers in one pass, as in its paper: it has no search of answers")

    def optimisers(self, optimisation: Optimisation) -> list[torch.optim.Optimizer]:
        """One for each of `optimisation.learning_rates_at`. On a GPU step counts and rates live there, so that a graph
        can hold a step."""
        return [torch.optim.Adam(self.parameters(), **adam_options(self.device))]

    def fast(self, precision: Precision) -> FastTwin:
        """The fastest way to compute `forward` on the device where the parameters are now."""
        return FastTwin(self)

    def diagnostics(self, answer: Answer) -> dict[str, float]:
        """Numbers of its own for every validation."""
        return {}

    @classmethod
    def config_from(cls, config: C, other: "TrainableMethod[Any]") -> C:
        """The config of a model that starts from the weights of another one. A method whose networks follow those
        weights takes from the other's config what decides them."""
        return config

    def weights_from(self, other: nn.Module) -> Mapping[str, Tensor] | None:
        """Another model's weights as this one takes them to start from; None where they mean something else."""
        return other.state_dict() if type(other) is type(self) else None

    def restart_statistics(self) -> None:
        """Running statistics begin anew: for pictures of another kind."""
        for module in self.modules():
            if isinstance(module, _NormBase):
                module.reset_running_stats()

    def share_statistics(self, gather: Gather) -> None:
        """Running statistics are those of all processes that train this model: nobody broadcasts them."""
        if any(isinstance(module, _NormBase) and module.track_running_stats for module in self.modules()):
            raise UserError(f"{self.name}: its running statistics are those of one process; train it without torchrun")

    def parameter_counts(self) -> dict[str, int]:
        """By part; `total` first."""
        parts = {name: sum(item.numel() for item in part.parameters()) for name, part in self.named_children()}
        return {"total": sum(item.numel() for item in self.parameters())} | parts


def adam_options(device: torch.device) -> dict[str, Any]:
    """The learning rate is set before every step."""
    on_gpu = device.type == "cuda"
    rate: float | Tensor = torch.zeros((), device=device) if on_gpu else 0.0
    return {"lr": rate, "fused": True, "capturable": on_gpu}


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nested tuples and dataclasses with other tensors in them."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        return tuple(mapped(item, change) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: mapped(getattr(value, field.name), change) for field in fields(value)})
    return value


def leaves_of(value: Any) -> Iterator[Any]:
    """What nested tuples and dataclasses hold in the end, in order."""
    if isinstance(value, tuple):
        for item in value:
            yield from leaves_of(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from leaves_of(getattr(value, field.name))
    else:
        yield value
