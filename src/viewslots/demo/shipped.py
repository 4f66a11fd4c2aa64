"""What there is to say about the model that comes with the package."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from viewslots.data.disk import read_json

ORIGIN = "run.json"


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

    def training(self) -> str:
        """Half a sentence."""
        if self.steps is None or self.data is None:
            return "how it was trained is not on record"
        views = f", {self.views} pictures at a time" if self.views else ""
        return f"trained without labels for {self.steps:,} steps on scenes of {self.data}{views} (seed {self.seed})"


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
    )
