"""What `viewslots bench` measures is what the other commands do."""

from typing import Any

import pytest

from viewslots.bench import train
from viewslots.experiments import experiment
from viewslots.training.step import EagerStep


@pytest.mark.parametrize("way", [train.PLAIN, train.FAST])
def test_bench_train_teaches_the_parts_that_its_experiment_teaches(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    made: list[dict[str, bool]] = []

    def watched(model: Any, *rest: Any) -> EagerStep:
        made.append({name: parameter.requires_grad for name, parameter in model.named_parameters()})
        return EagerStep(model, *rest)

    monkeypatch.setattr(train, "fast_step" if way == train.FAST else "EagerStep", watched)
    for name in ("umbra-glimpses/dsprites", "umbra/dsprites"):
        train._steps(name, way, "fp32", "cpu", 0)
    parts = experiment("umbra-glimpses/dsprites").optimisation.parts
    assert parts
    some, whole = made
    assert all(learns == name.startswith(tuple(f"{part}." for part in parts)) for name, learns in some.items())
    assert any(some.values())
    assert all(whole.values())
