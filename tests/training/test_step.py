"""The bookkeeping of GraphStep on a CPU, with a stand-in that runs the step where a graph would replay it.

Real graphs need a GPU: test_gpu_steps.py.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from step_pairs import gaps_from_equal_states, walker
from toy_method import EXPERIMENT, Toy

from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import TINY, TINY_OPTIMISATION, TINY_SCHEDULE
from viewslots.methods.per_view.model import PerView
from viewslots.training.state import TrainState, gather_state, restore_state
from viewslots.training.step import EagerStep, GraphStep, Model, Recording, Step, StepTerms, fast_step
from viewslots.types import SceneBatch

VIEWS = (1, 1, 2, 2, 1, 2)
"""Of six steps: a shape is met for the first time at steps 0 and 2, and an old one comes back at step 4."""


class Stream:
    def wait_stream(self, other: "Stream") -> None:
        pass


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capturing runs the step once more, for real: what it changes must be put back too."""
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)


@dataclass
class Replay:
    """What a graph does: the recorded step on the recorded inputs, answered where the first answer was."""

    step: EagerStep
    inputs: Any
    terms: StepTerms
    count: int = 0

    def replay(self) -> None:
        self.count += 1
        found = self.step.run(*self.inputs)
        for name, value in vars(found).items():
            getattr(self.terms, name).copy_(value)


class ReplayedStep(GraphStep):
    def record(self, given: Any) -> Recording:
        recording = super().record(given)
        graph: Any = Replay(self.step, recording.inputs, recording.terms)
        return Recording(graph, recording.inputs, recording.terms)


class TinyTraining:
    """A model, its Adam, and steps that follow from their number."""

    def __init__(self, replayed: bool) -> None:
        self.model = Ocloc(TINY, torch.Generator().manual_seed(0)).train()
        self.optimisers = self.model.optimisers(TINY_OPTIMISATION)
        eager = EagerStep(self.model, self.optimisers, "fp32")
        self.step: Step = ReplayedStep(eager) if replayed else eager

    def take(self, steps: range) -> list[list[float]]:
        """The terms of each step."""
        answers = []
        for step in steps:
            generator = torch.Generator().manual_seed(step)
            image = torch.rand(2, VIEWS[step], 3, 32, 32, generator=generator)
            batch = SceneBatch(image, torch.ones(2, VIEWS[step], dtype=torch.bool))
            noise = self.model.draw_noise(batch, generator)
            terms = self.step(batch, noise, TINY_SCHEDULE.at(100 * step), [1e-3 * (step + 1)])
            answers.append(terms.stacked().tolist())
        return answers

    def state(self, step: int) -> TrainState:
        return gather_state(self.model, self.optimisers, step, {})


@pytest.fixture
def eager() -> TinyTraining:
    return TinyTraining(replayed=False)


@pytest.fixture
def graph() -> TinyTraining:
    return TinyTraining(replayed=True)


def assert_same(one: TrainState, other: TrainState) -> None:
    assert one.tensors.keys() == other.tensors.keys()
    for name, value in one.tensors.items():
        assert torch.equal(value, other.tensors[name]), name


def test_recording_leaves_no_trace_and_inputs_arrive(eager: TinyTraining, graph: TinyTraining) -> None:
    assert graph.take(range(6)) == eager.take(range(6))
    assert_same(eager.state(6), graph.state(6))
    assert eager.state(6).tensors["adam.step.inference.mu_hat"] == 6
    assert [recording.graph.count for recording in graph.step._recordings.values()] == [3, 3]


def test_a_resumed_run_records_anew(eager: TinyTraining, graph: TinyTraining) -> None:
    eager.take(range(3))
    restore_state(eager.state(3), graph.model, graph.optimisers)
    assert graph.take(range(3, 6)) == eager.take(range(3, 6))
    assert_same(eager.state(6), graph.state(6))


def test_a_state_restored_between_replays_counts(eager: TinyTraining, graph: TinyTraining) -> None:
    """Into the very tensors that a graph knows."""
    eager.take(range(2))
    kept = eager.state(2)
    eager.take(range(2, 4))
    graph.take(range(6))
    restore_state(kept, graph.model, graph.optimisers)
    graph.take(range(2, 4))
    assert_same(eager.state(4), graph.state(4))


@pytest.mark.parametrize("kind", [Ocloc, PerView])
@pytest.mark.parametrize("clip_norm", [0.0, 1.0])
def test_fast_steps_from_equal_states(kind: type[Model], clip_norm: float) -> None:
    """Losses differed by 2e-7; gradients by 1e-5, but for one step of 4e-4, a ReLU at its kink."""
    plain, fast = (walker(kind, "tiny", "cpu", way, "fp32", clip_norm) for way in (False, True))
    found = gaps_from_equal_states(plain, fast, "tiny", 1e-3)
    assert found.loss < 2e-6
    assert found.gradient < 2e-3


def toy_steps(replayed: bool) -> TrainState:
    """Two optimisers, a joint bound on gradients, a schedule of its own."""
    model = Toy(EXPERIMENT.model, torch.Generator().manual_seed(0))
    optimisers = model.optimisers(EXPERIMENT.optimisation)
    eager = EagerStep(model, optimisers, "fp32", EXPERIMENT.optimisation.clip_norm)
    step: Step = ReplayedStep(eager) if replayed else eager
    for number, views in enumerate(VIEWS):
        generator = torch.Generator().manual_seed(number)
        image = torch.rand(2, views, 3, 32, 32, generator=generator)
        batch = SceneBatch(image, torch.ones(2, views, dtype=torch.bool))
        rates = EXPERIMENT.optimisation.learning_rates_at(number + 1)
        step(batch, model.draw_noise(batch, generator), EXPERIMENT.schedule.at(number), rates)
    return gather_state(model, optimisers, len(VIEWS), {})


def test_a_recording_puts_back_what_every_optimiser_keeps() -> None:
    eager = toy_steps(replayed=False)
    assert_same(eager, toy_steps(replayed=True))
    assert eager.tensors["rmsprop.step.belongs.weight"] == eager.tensors["adam.step.colours"] == len(VIEWS)


@pytest.mark.parametrize("capturable", [False, True])
def test_a_method_says_whether_its_steps_are_recorded(monkeypatch: pytest.MonkeyPatch, capturable: bool) -> None:
    model = Toy(EXPERIMENT.model)
    monkeypatch.setattr(Toy, "capturable", capturable)
    optimisers = model.optimisers(EXPERIMENT.optimisation)
    assert type(fast_step(model, optimisers, "fp32")) is EagerStep
    monkeypatch.setattr(Toy, "device", torch.device("cuda"))
    with torch.backends.cudnn.flags(benchmark=False):
        assert type(fast_step(model, optimisers, "fp32")) is (GraphStep if capturable else EagerStep)
