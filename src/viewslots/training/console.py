"""What a training tells a person while it runs."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tqdm import tqdm


class Console:
    """How it goes, on stderr: a bar with the last figures on a terminal, else a line at every row of figures."""

    def __init__(self, steps: int, terms: Sequence[str], speaks: bool, say: Callable[[str], None]) -> None:
        self.steps, self.terms, self.speaks, self._say = steps, ("loss", *terms), speaks, say
        self._scores = ""
        self._bar: tqdm[Any] | None = None
        self._first: tuple[int, float] | None = None

    def __enter__(self) -> "Console":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def step(self, done: int) -> None:
        if not self.speaks:
            return
        if self._first is None:
            # The first step compiles and loads; rates are counted from its end.
            self._first = done, time.monotonic()
            if sys.stderr.isatty():
                self._bar = tqdm(total=self.steps, initial=done, unit="step", file=sys.stderr, dynamic_ncols=True)
        elif self._bar is not None:
            self._bar.update(done - self._bar.n)

    def figures(self, step: int, terms: Mapping[str, float]) -> None:
        if not self.speaks:
            return
        text = " ".join(f"{name} {terms[name]:.4g}" for name in self.terms if name in terms) + self._scores
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
        else:
            self._say(f"step {step}/{self.steps}  {self.rate(step)}  {text}")

    def rate(self, step: int) -> str:
        """Rate and remaining time."""
        first, since = self._first or (step, time.monotonic())
        if step <= first:
            return "-"
        rate = (step - first) / max(time.monotonic() - since, 1e-9)
        left = int((self.steps - step) / rate)
        return f"{rate:.1f} steps/s  {left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"

    def scores(self, step: int, scores: Mapping[str, float | None]) -> None:
        known = {name: value for name, value in scores.items() if value is not None}
        self._scores = f"  at {step}: " + " ".join(f"{name} {value:.3f}" for name, value in known.items())

    def say(self, line: str) -> None:
        if not self.speaks:
            return
        if self._bar is not None:
            self._bar.write(line, file=sys.stderr)
        else:
            self._say(line)
