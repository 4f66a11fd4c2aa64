"""What the page tells of: the model that comes with the package, the scenes as it sees them, and what is true."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from viewslots.demo.scores import Scores
from viewslots.files import read_json
from viewslots.viewpoints.scene import InferredScene

ORIGIN = "run.json"
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class ModelFacts:
    """From the file beside the weights; None or empty where it does not tell."""

    name: str
    parameters: int
    steps: int | None
    seed: int | None
    data: str | None
    views: int | None
    validated: dict[str, float | None]
    """Scores on the validation scenes at the end of training, by the appendix's formulas."""
    first: str | None = None
    """The model whose weights it started from."""

    def training(self) -> str:
        """Half a sentence."""
        if self.steps is None or self.data is None:
            return "how it was trained is not on record"
        first = f", first as {self.first}, then" if self.first else ""
        views = f", {self.views} pictures at a time" if self.views else ""
        where = f"on scenes of {self.data}{views} (seed {self.seed})"
        return f"trained without labels{first} for {self.steps:,} steps {where}"


def shipped_folder(name: str) -> Path:
    """By its place in the package: a folder of the same name here must not take its place."""
    return Path(str(files("viewslots"))) / "shipped" / name


def model_facts(name: str, parameters: int) -> ModelFacts:
    file = shipped_folder(name) / ORIGIN
    origin: dict[str, Any] = read_json(file) if file.is_file() else {}
    config, facts = origin.get("config") or {}, origin.get("facts") or {}
    return ModelFacts(
        name=name,
        parameters=parameters,
        steps=(config.get("schedule") or {}).get("steps"),
        seed=config.get("seed"),
        data=config.get("world"),
        views=config.get("views"),
        validated=facts.get("scores") or {},
        first=config.get("init"),
    )


@dataclass(frozen=True)
class Story:
    """The model, the scenes as it sees them, and what is true."""

    model: ModelFacts
    scenes: Sequence[InferredScene]
    held_out: Float[Tensor, "S V 3 H W"]
    visible: Sequence[int]
    """How many objects are to be seen, a scene."""
    scores: Scores
    seed: int

    def counting(self) -> str:
        """One sentence on how well the objects were counted here."""
        pairs = [(scene.count, there) for scene, there in zip(self.scenes, self.visible, strict=True)]
        right = sum(found == there for found, there in pairs)
        if right == len(pairs):
            return "Here it counts the objects of every scene right."
        share = f"Here it counts the objects of {number_of(right, 'scene')} of {number_of(len(pairs))} right"
        if all(found >= there for found, there in pairs):
            return f"{share}, and finds too many in the others; look for copies of one object among the layers."
        return f"{share}."


def number_of(count: int, noun: str = "") -> str:
    """In words, as far as one counts on fingers."""
    number = WORDS[count] if count < len(WORDS) else str(count)
    return f"{number} {noun}{'s' * (count != 1)}" if noun else number
