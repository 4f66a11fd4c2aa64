"""The loop, top to bottom."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from viewslots.errors import UserError
from viewslots.training.checkpoint import Damaged, load_step, saved_steps
from viewslots.training.distributed import Ranks
from viewslots.training.parts import Parts
from viewslots.training.processes import Interrupted, StopSignals
from viewslots.training.run import RunFolder, Saver
from viewslots.training.settings import RunSettings
from viewslots.training.start import settings_digest
from viewslots.training.state import Optimisers, gather_state, restore_state
from viewslots.training.validation import ValidationResult, warnings
from viewslots.types import SceneBatch

AUTOSAVE_SECONDS = 600
"""Slow machines save at least this often, whatever the interval in steps."""
OWED = "validation_owed"
"""A fact of checkpoints whose step could not be validated: the data set could not be read."""
DUE = 1000
"""Beyond all signal numbers: rank 0 says by it that a save is due."""


class Narrator(Protocol):
    """Whoever tells a person how it goes."""

    def step(self, done: int) -> None: ...

    def figures(self, step: int, terms: Mapping[str, float]) -> None: ...

    def scores(self, step: int, scores: Mapping[str, float | None]) -> None: ...

    def say(self, line: str) -> None: ...


@dataclass(frozen=True)
class Outcome:
    run: Path
    step: int
    best: dict[str, Any] | None
    """Step, loss and scores of the best validation; none if the run ended in its single-view phase."""
    last: dict[str, Any] | None
    """The same of the last validation."""


class Training:
    """A run between two steps: what changes are the parts, `sums`, `facts` and `done`; a checkpoint holds them all."""

    def __init__(
        self,
        settings: RunSettings,
        parts: Parts,
        folder: RunFolder | None,
        ranks: Ranks,
        narrator: Narrator,
        goes_on: bool = False,
    ) -> None:
        """`goes_on`: another stage follows."""
        self.goes_on = goes_on
        self.settings, self.parts, self.folder, self.ranks, self.narrator = settings, parts, folder, ranks, narrator
        self.names = ("weighted", "loss", *parts.model.terms)
        self.sums = torch.zeros(len(self.names), device=parts.model.device)
        """Of what was minimised, of the loss and of its terms, since the last row of figures."""
        self.facts: dict[str, Any] = {"count": 0, "best": None, "last": None, "warned": []}
        self.done = 0
        self.saver = Saver(parts.model)
        self._clock = self.done, time.monotonic()

    def resume(self) -> None:
        """Go back to the newest checkpoint, if there is one."""
        state = self.ranks.share(self.folder.newest(self.narrator.say) if self.folder else None)
        if state is not None:
            restore_state(state, self.parts.model, self.parts.optimisers)
            self.done, self.facts = state.step, dict(state.facts)
            sums = self.facts.pop("sums")
            if len(sums) == len(self.names):
                self.sums = torch.tensor(sums, device=self.sums.device)
            else:
                self.facts["count"] = 0  # checkpoints of before had no loss among them: the next row is of later steps
            self.saver.last = state.step
        if self.folder:
            self.folder.rewind(self.done if state is not None else -1)  # a run may have figures of its start
            if changed := RunSettings.from_json(self.folder.config).differences(self.settings):
                self.folder.log({"step": self.done, "kind": "event", "resumed_with": changed})
            # A kill may have come after a checkpoint, before its model was written.
            if state is not None and self.folder.last_kept < self.done:
                self.folder.keep_last(self.parts.model, self.done)

    def run(self) -> Outcome:
        """All steps that are left. Raises Interrupted after a signal, when everything has been saved."""
        settings = self.settings
        with self.saver, StopSignals(insist=self.ranks.count > 1) as stop:
            if self.done < settings.steps:
                self.parts.model.check(self.batch_of(self.done))
            if self.done == 0 and settings.tunes:
                self.validate()
            if self.owes_validation:
                self.validate()
                self.save()
            self._clock = self.done, time.monotonic()
            while self.done < settings.steps:
                self.take_step(self.done)
                agreed = self.ranks.most(stop.number + DUE * self.save_is_due())
                self.look_after(agreed % DUE, agreed >= DUE)
            if self.goes_on and (late := self.ranks.most(stop.number)):  # during the last validation or save
                self.stop(late)
        return Outcome(self.folder.path if self.folder else Path(), self.done, self.facts["best"], self.facts["last"])

    @property
    def owes_validation(self) -> bool:
        """Whether that of the newest checkpoint could not be made."""
        return bool(self.facts.get(OWED))

    def save_is_due(self) -> bool:
        """By the clock of rank 0: the others never save, so theirs would always say so."""
        return self.ranks.first and self.saver.age() > AUTOSAVE_SECONDS

    def take_step(self, step: int) -> None:
        settings = self.settings
        with self.saving_first():
            batch = self.batch_of(step)
        terms = self.parts.step(
            batch,
            self.parts.noise(step, settings.views_at(step)),
            settings.schedule.at(step),
            settings.optimisation.learning_rates_at(step + 1),
        )
        self.sums = self.sums + terms.stacked()
        self.facts["count"] += 1
        self.done = step + 1
        self.narrator.step(self.done)

    @contextmanager
    def saving_first(self) -> Iterator[None]:
        """A data set that can no longer be read ends the run; between two steps, so nothing of it is lost. Of several
        ranks some may still wait for this one, and none saves alone. Before the first step there is nothing to save.
        """
        try:
            yield
        except UserError as error:
            if self.folder is None or self.ranks.count > 1 or self.done == 0:
                raise
            self.save()
            self.saver.finish()
            raise UserError(f"{error}; step {self.done} is saved, then go on with --resume") from error

    def batch_of(self, step: int) -> SceneBatch:
        return self.parts.feed(step, *self.settings.shown_at(step))

    def look_after(self, signal: int, save: bool) -> None:
        """What is due between two steps. The order is fixed, and a checkpoint comes last: it lacks nothing."""
        settings, step = self.settings, self.done
        last = step == settings.steps
        if step % settings.log_every == 0 or last:
            self.log()
        if step % settings.validate_every == 0 or last:
            self.validate()
        if step % settings.checkpoint_every == 0 or step in settings.pinned or last or save or signal:
            self.save()
        if signal and (self.goes_on or not last):
            self.stop(signal)

    def stop(self, signal: int) -> None:
        self.saver.finish()
        raise Interrupted(signal, self.done, f" of stage {len(self.settings.stages)}" if self.goes_on else "")

    def log(self) -> None:
        """Means since the last row. Here, in validations and in checkpoints alone the host waits for the device."""
        first, *others = self.settings.optimisation.learning_rates_at(self.done)
        row: dict[str, Any] = self.means() | {"learning_rate": first}
        row |= {f"learning_rate_{number}": rate for number, rate in enumerate(others, 2)}
        self.sums, self.facts["count"] = torch.zeros_like(self.sums), 0
        (before, then), self._clock = self._clock, (self.done, time.monotonic())
        row["steps_per_second"] = (self.done - before) / max(self._clock[1] - then, 1e-9)
        if self.sums.is_cuda:
            row["peak_gigabytes"] = torch.cuda.max_memory_allocated(self.sums.device) / 1e9
        if self.folder:
            self.folder.log({"step": self.done, "kind": "train"} | row)
        self.narrator.figures(self.done, row)

    def means(self) -> dict[str, float]:
        """Of the steps since the last row, over all ranks; an error if any is not finite."""
        self.sums = self.ranks.mean(self.sums)
        values = (self.sums / max(self.facts["count"], 1)).tolist()
        named = dict(zip(self.names, values, strict=True))
        self.require_finite([name for name, value in named.items() if not math.isfinite(value)])
        return named

    def require_finite(self, bad: list[str]) -> None:
        if not bad:
            return
        self.saver.finish()
        kept = (
            "nothing was saved yet" if self.saver.last is None else f"the checkpoint of step {self.saver.last} is good"
        )
        raise UserError(
            f"by step {self.done} these were no longer finite numbers: {', '.join(bad)}; {kept}. Try a lower "
            "--learning-rate, --precision fp32 or another --seed, in a new --run"
        )

    def validate(self) -> None:
        """On rank 0; the others wait. What is not finite is not scored."""
        self.require_finite(non_finite(self.parts.model, self.parts.optimisers))
        bad = False
        if self.parts.validation is not None:
            self.facts[OWED] = True
            with self.saving_first():
                result = self.parts.validation(self.parts.model)
            bad = result is None
            if result is not None:
                self.record(result)
        self.facts.pop(OWED, None)
        self.require_finite(["the loss of the validation"] if self.ranks.most(bad) else [])

    def record(self, result: ValidationResult) -> None:
        """A row of figures, a picture, and the model if it is the best so far; in the single-view phase none is."""
        assert self.folder is not None
        entry = {"step": self.done, "loss": result.loss, "scores": result.scores}
        self.folder.log({"step": self.done, "kind": "valid"} | result.to_json())
        self.folder.picture(f"step-{self.done:08d}", result.sheet)
        self.narrator.scores(self.done, result.scores)
        self.facts["last"] = entry
        counts = not self.settings.single_view(max(self.done - 1, 0))
        if counts and (self.facts["best"] is None or result.loss < self.facts["best"]["loss"]):
            self.facts["best"] = entry
            self.folder.keep_best(self.parts.model, self.done, entry)
        self.warn(warnings(result.diagnostics, self.done, self.settings.steps))

    def warn(self, found: dict[str, str]) -> None:
        """Said when it begins, not at every validation it lasts."""
        assert self.folder is not None
        for kind, line in found.items():
            if kind not in self.facts["warned"]:
                self.folder.log({"step": self.done, "kind": "event", "warning": line})
                self.narrator.say(f"warning: {line}")
        self.facts["warned"] = list(found)

    def save(self) -> None:
        """A bad state is never saved: terms, weights and moments are looked at first. Writing goes on behind us."""
        self.means()
        self.require_finite(non_finite(self.parts.model, self.parts.optimisers))
        if self.folder is not None:
            facts = self.facts | {"sums": self.sums.tolist(), "settings": settings_digest(self.folder.config)}
            state = gather_state(self.parts.model, self.parts.optimisers, self.done, facts)
            self.saver.save(self.folder, state, self.settings.pinned)


def non_finite(model: nn.Module, optimisers: Optimisers) -> list[str]:
    """Names of parts that hold NaN or infinities; waits for the device once."""
    tensors: dict[str, list[Tensor]] = {"weights": [*model.parameters()], "running statistics": [*model.buffers()]}
    tensors["moments of the optimisers"] = [
        value for one in optimisers for moments in one.state.values() for value in moments.values()
    ]
    names = [name for name, values in tensors.items() if values]
    fine = [torch.stack([value.isfinite().all() for value in tensors[name]]).all() for name in names]
    return [name for name, good in zip(names, torch.stack(fine).tolist(), strict=True) if not good]


def facts_at_end(folder: RunFolder, steps: int) -> dict[str, Any] | None:
    """Of a run of so many steps of which nothing is left: its last validation, checkpoint and model are there. None of
    any other."""
    if steps not in saved_steps(folder.checkpoints) or folder.last_kept != steps:
        return None
    try:
        facts = load_step(folder.checkpoints, steps).facts
    except Damaged:
        return None  # an older checkpoint goes on
    return None if facts.get(OWED) else facts
