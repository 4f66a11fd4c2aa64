"""The figures of a run: metrics.jsonl, which is the truth; TensorBoard, which shows it; and a line for a person."""

import io
import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from viewslots.files import plain_errors, read_bounded, replacing, require_regular, require_space, shown
from viewslots.pulse import LINE_SECONDS
from viewslots.run_format import METRICS_FILE, METRICS_LIMIT
from viewslots.training.state import finite_json

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

TENSORBOARD = "tensorboard"
KINDS = ("train", "valid", "event")


class Metrics:
    """Rows of figures in a run folder; files are opened when the first row comes."""

    def __init__(self, folder: Path) -> None:
        self.path, self._shown_in = folder / METRICS_FILE, folder / TENSORBOARD
        self._file: io.FileIO | None = None
        self._tensorboard: SummaryWriter | None = None
        self._shows = True
        self._hide_from: int | None = None

    def log(self, row: dict[str, Any]) -> None:
        """One JSON line, which survives a kill from now on; its numbers go to TensorBoard as KIND/NAME."""
        if type(row.get("step")) is not int or row.get("kind") not in KINDS:
            raise ValueError(f"a row needs a whole 'step' and a 'kind' of {KINDS}: {shown(row)}")
        row = finite_json(row)
        with plain_errors("writing", self.path):
            self._append(json.dumps(row, allow_nan=False).encode() + b"\n")
        if row["kind"] != "event" and self._shows:
            try:
                self._show(row)
            except (OSError, ImportError) as error:
                self._shows = False  # its numbers are in metrics.jsonl as well
                if not isinstance(error, ImportError):
                    self.log({"step": row["step"], "kind": "event", "warning": f"no TensorBoard from here on: {error}"})

    def rewind(self, step: int) -> None:
        """Drop all rows beyond `step`, and whatever is no whole row: a kill may have cut the last one off."""
        self.close()
        self._hide_from = step + 1
        if not self.path.exists():
            return
        with plain_errors("writing", self.path):
            content = read_bounded(self.path, METRICS_LIMIT)
            kept = b"".join(line for line in content.splitlines(keepends=True) if _row_step(line) <= step)
            if kept != content:
                require_space(self.path.parent, len(kept))
                with replacing(self.path) as draft:
                    draft.write_bytes(kept)

    def flush(self) -> None:
        """To the disk itself. Another thread may log meanwhile."""
        file = self._file
        with plain_errors("writing", self.path):
            if file is not None:
                os.fsync(file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._tensorboard is not None:
            with suppress(OSError):
                self._tensorboard.close()
            self._tensorboard = None

    def _append(self, line: bytes) -> None:
        """Whole lines alone: what a full disk cut off is taken back."""
        if self._file is None:
            require_regular(self.path)
            self._file = io.FileIO(self.path, "a")
        before = os.fstat(self._file.fileno()).st_size
        try:
            written = 0
            while written < len(line):
                written += self._file.write(line[written:])
        except OSError:
            with suppress(OSError):
                self._file.truncate(before)
            raise

    def _show(self, row: dict[str, Any]) -> None:
        if self._tensorboard is None:
            from torch.utils.tensorboard import SummaryWriter

            self._tensorboard = SummaryWriter(str(self._shown_in), purge_step=self._hide_from, flush_secs=30)
        for name, value in _numbers(row, row["kind"]):
            self._tensorboard.add_scalar(name, value, row["step"])


def _row_step(line: bytes) -> float:
    """The step of a row; infinite for what is no whole row."""
    try:
        step = json.loads(line)["step"] if line.endswith(b"\n") else None
    except (ValueError, KeyError, TypeError):
        return math.inf
    return step if type(step) is int else math.inf


def _numbers(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}/{name}")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            yield f"{prefix}/{name}", value


RECENT = 10
"""Lines over which the rate is told: a step with one view, as at the start of a run, is shorter than later ones."""


class Console:
    """How it goes, on stderr: a bar with the last figures on a terminal, else a line at every row of figures, and now
    and then between rows that are far apart."""

    def __init__(self, steps: int, terms: Sequence[str], speaks: bool, say: Callable[[str], None]) -> None:
        self.steps, self.terms, self.speaks, self._say = steps, ("loss", *terms), speaks, say
        self._before, self._total, self._stage = 0, steps, ""
        self._scores = ""
        self._bar: tqdm[Any] | None = None
        self._told: deque[tuple[int, float]] = deque(maxlen=RECENT)
        """Steps, and when they were told of. The first step compiles and loads, so rates are counted from its end."""

    def __enter__(self) -> "Console":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def stage(self, number: int, count: int, before: int, total: int) -> None:
        """This is one of several stages: `before` of `total` steps lie behind it."""
        self._before, self._total, self._stage = before, total, f"stage {number}/{count}  "

    def step(self, done: int) -> None:
        if not self.speaks:
            return
        if not self._told:
            self._told.append((done, time.monotonic()))
            if sys.stderr.isatty():
                begun = self._before + done
                self._bar = tqdm(total=self._total, initial=begun, unit="step", file=sys.stderr, dynamic_ncols=True)
                self._bar.set_description_str(self._stage.strip(), refresh=False)
        elif self._bar is not None:
            self._bar.update(self._before + done - self._bar.n)
        elif time.monotonic() - self._told[-1][1] >= LINE_SECONDS:
            self._line(done)

    def figures(self, step: int, terms: Mapping[str, float]) -> None:
        if not self.speaks:
            return
        text = " ".join(f"{name} {terms[name]:.4g}" for name in self.terms if name in terms) + self._scores
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
        else:
            if len(self._told) > 1 and self._told[-1][0] == step:  # a slow step has just told of itself
                self._say(f"{self._stage}step {step}/{self.steps}  {text}")
            else:
                self._line(step, f"  {text}")
            self._scores = ""  # a line stays, and has told them

    def _line(self, step: int, text: str = "") -> None:
        """With the rate, and the time that is left for all stages."""
        now = time.monotonic()
        first, since = self._told[0] if self._told else (step, now)
        pace = "-"
        if step > first:
            rate = (step - first) / max(now - since, 1e-9)
            left = int((self._total - self._before - step) / rate)
            clock = f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}"
            pace = f"{rate:.{1 if rate >= 1 else 2}f} steps/s  {clock} left"
        self._say(f"{self._stage}step {step}/{self.steps}  {pace}{text}")
        self._told.append((step, now))

    def scores(self, step: int, scores: Mapping[str, float | None]) -> None:
        known = {name: value for name, value in scores.items() if value is not None}
        text = " ".join(f"{name} {value:.3f}" for name, value in known.items())
        self._scores = f"  at {step}: {text}" if text else ""
        if text and step == self.steps and self.speaks:  # no figures follow
            self.say(f"{self._stage}at {step}, the last step: {text}")

    def say(self, line: str) -> None:
        if not self.speaks:
            return
        if self._bar is not None:
            self._bar.write(line, file=sys.stderr)
        else:
            self._say(line)
