"""Checkpoints: bit for bit, complete or not there, whatever happens to the process and the files."""

import errno
import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from forked import fatal_at, give_up_rights, in_child, killed_after, limit_files
from viewslots import files
from viewslots.errors import UserError
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import TINY, TINY_OPTIMISATION, TINY_SCHEDULE
from viewslots.training import checkpoint
from viewslots.training.checkpoint import load_newest, load_step, save_checkpoint
from viewslots.training.state import TrainState, finite_json, gather_state, restore_state
from viewslots.training.step import EagerStep
from viewslots.types import SceneBatch


@pytest.fixture(autouse=True)
def _one_thread_and_no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only power cuts need fsync, and a busy disk is slow at it; tests that watch it patch it themselves."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class TinyRun:
    """A model, its Adam, and steps that are a function of their number."""

    def __init__(self, seed: int) -> None:
        self.model = Ocloc(TINY, generator(seed)).train()
        self.optimisers = self.model.optimisers(TINY_OPTIMISATION)
        self.step = EagerStep(self.model, self.optimisers, "fp32")

    def take(self, step: int) -> torch.Tensor:
        image = torch.rand(2, 2, 3, 32, 32, generator=generator(step))
        batch = SceneBatch(image, torch.ones(2, 2, dtype=torch.bool))
        noise = self.model.draw_noise(batch, generator(1000 + step))
        return self.step(batch, noise, TINY_SCHEDULE.at(step), [1e-3]).minimised

    def gather(self, step: int) -> TrainState:
        return gather_state(self.model, self.optimisers, step, {"best": {"loss": 0.1 + 0.2, "step": 2}})


def made(step: int, size: int = 1000) -> TrainState:
    """A state whose content follows from its step."""
    values = torch.arange(size, dtype=torch.float32) + step
    return TrainState(step, {"model.a": values, "adam.step.a": torch.tensor(float(step))}, {"loss": step / 7})


def is_made(state: TrainState | None, size: int = 1000) -> bool:
    return state is not None and same(state, made(state.step, size))


def same(left: TrainState, right: TrainState) -> bool:
    """Bit for bit, which == is not: it takes 0 for -0, and no NaN for another."""
    if (left.step, left.facts, left.tensors.keys()) != (right.step, right.facts, right.tensors.keys()):
        return False
    pairs = [(value, right.tensors[name]) for name, value in left.tensors.items()]
    return all(a.dtype == b.dtype and a.numpy().tobytes() == b.numpy().tobytes() for a, b in pairs)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def steps(folder: Path) -> list[int]:
    """Steps that are there with both files; fails if there is anything else."""
    found = [int(name[5:13]) for name in names(folder) if name.endswith(".json")]
    assert names(folder) == sorted(f"step-{step:08d}.{end}" for step in found for end in ("json", "safetensors"))
    return found


def no_warning(line: str) -> None:
    raise AssertionError(line)


# --- the state


def test_a_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    straight = TinyRun(seed=1)
    for step in range(3):
        straight.take(step)
    save_checkpoint(tmp_path, straight.gather(3))
    expected = [straight.take(step) for step in (3, 4)]

    other = TinyRun(seed=2)
    state = load_newest(tmp_path, no_warning)
    assert state is not None
    assert (state.step, state.facts) == (3, {"best": {"loss": 0.1 + 0.2, "step": 2}})
    restore_state(state, other.model, other.optimisers)
    assert same(other.gather(3), state)
    for step, loss in zip((3, 4), expected, strict=True):
        assert torch.equal(other.take(step), loss)
    assert same(other.gather(5), straight.gather(5))
    assert straight.model.nvil.weight != 0  # NVIL's statistics are part of it


def test_tensors_have_the_promised_names(tmp_path: Path) -> None:
    run = TinyRun(seed=1)
    run.take(0)
    tensors = load_file(save_checkpoint(tmp_path, run.gather(1)))
    parameters = [name for name, _ in run.model.named_parameters()]
    moments = {f"adam.{key}.{name}" for key in ("exp_avg", "exp_avg_sq", "step") for name in parameters}
    assert set(tensors) == {f"model.{name}" for name in run.model.state_dict()} | moments
    assert tensors["adam.step.inference.mu_hat"] == 1.0


def test_a_gathered_state_is_a_copy() -> None:
    run = TinyRun(seed=1)
    run.take(0)
    facts: dict[str, Any] = {"list": [1]}
    state = gather_state(run.model, run.optimisers, 1, facts)
    before = {name: value.clone() for name, value in state.tensors.items()}
    run.take(1)
    facts["list"].append(2)
    assert same(state, TrainState(1, before, {"list": [1]}))


def small(dtype: torch.dtype = torch.float32, **options: Any) -> tuple[nn.Module, torch.optim.Adam]:
    """A network with a convolution in channels_last and a parameter that never gets a gradient."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 1)).to(dtype)
    model.to(memory_format=torch.channels_last)
    model.register_parameter("unused", nn.Parameter(torch.ones(2, dtype=dtype)))
    return model, torch.optim.Adam(model.parameters(), lr=1e-2, **options)


def learn(model: nn.Module, optimiser: torch.optim.Optimizer, step: int) -> None:
    optimiser.zero_grad()
    images = torch.randn(2, 3, 4, 4, generator=generator(step)).to(next(model.parameters()).dtype)
    model(images).square().mean().backward()
    optimiser.step()


ADAMS: list[dict[str, Any]] = [{"fused": True}, {"foreach": True}, {"foreach": False}]


@pytest.mark.parametrize("options", ADAMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_kind_of_adam(options: dict[str, Any], dtype: torch.dtype) -> None:
    model, optimiser = small(dtype, **options)
    for step in range(3):
        learn(model, optimiser, step)
    state = gather_state(model, [optimiser], 3, {})
    other, second = small(dtype, **options)
    restore_state(state, other, [second])
    learn(model, optimiser, 3)
    learn(other, second, 3)
    assert same(gather_state(model, [optimiser], 4, {}), gather_state(other, [second], 4, {}))
    assert "adam.step.unused" not in state.tensors
    weight, restored = (item.state[item.param_groups[0]["params"][0]] for item in (optimiser, second))
    assert {key: (value.dtype, value.stride()) for key, value in restored.items()} == {
        key: (value.dtype, value.stride()) for key, value in weight.items()
    }


def test_fused_and_plain_adams_exchange_states() -> None:
    model, optimiser = small(foreach=True)
    learn(model, optimiser, 0)
    other, fused = small(fused=True)
    restore_state(gather_state(model, [optimiser], 1, {}), other, [fused])
    learn(model, optimiser, 1)
    learn(other, fused, 1)
    assert torch.allclose(model[0].weight, other[0].weight, atol=1e-7)  # type: ignore[index]


def test_restoring_keeps_addresses() -> None:
    """A captured graph replays on the tensors it was captured with."""
    model, optimiser = small()
    fresh = gather_state(model, [optimiser], 0, {})
    learn(model, optimiser, 0)
    later = gather_state(model, [optimiser], 1, {})
    learn(model, optimiser, 1)

    def addresses() -> list[int]:
        held = [value for moments in optimiser.state.values() for value in moments.values()]
        return [value.data_ptr() for value in [*model.state_dict().values(), *held]]

    before = addresses()
    restore_state(later, model, [optimiser])
    assert same(gather_state(model, [optimiser], 1, {}), later)
    restore_state(fresh, model, [optimiser])
    assert addresses() == before
    for step in range(2):
        learn(model, optimiser, step)
    twin, second = small()
    for step in range(2):
        learn(twin, second, step)
    assert same(gather_state(model, [optimiser], 2, {}), gather_state(twin, [second], 2, {}))


def test_a_state_of_another_model_changes_nothing() -> None:
    model, optimiser = small()
    learn(model, optimiser, 0)
    state = gather_state(model, [optimiser], 1, {})
    other, second = small()
    untouched = gather_state(other, [second], 0, {})
    weight = "model.2.weight"
    cases: list[tuple[dict[str, Any], str]] = [
        ({weight: torch.zeros(2, 16)}, r"model\.2\.weight has shape \[2, 16\], expected \[1, 16\]"),
        ({weight: torch.zeros(1, 16).half()}, r"has type torch\.float16, expected torch\.float32"),
        ({weight: None}, r"missing or unknown tensors model\.2\.weight"),
        ({"model.more": torch.zeros(1)}, "unknown tensors model.more"),
        ({"adam.step.2.weight": None}, r"tensors adam\.step\.2\.weight"),
        ({"adam.step.2.weight": torch.zeros(1)}, r"adam\.step\.2\.weight has shape \[1\], expected \[\]"),
        ({"adam.exp_avg.2.weight": torch.zeros(3)}, r"adam\.exp_avg\.2\.weight has shape \[3\]"),
        ({"adam.exp_avg.ghost": torch.zeros(3)}, r"unknown tensors adam\.exp_avg\.ghost"),
    ]
    for change, message in cases:
        tensors = {name: value for name, value in (state.tensors | change).items() if value is not None}
        with pytest.raises(UserError, match=f"checkpoint of step 1 does not fit this model: .*{message}"):
            restore_state(TrainState(1, tensors, {}), other, [second])
    assert same(gather_state(other, [second], 0, {}), untouched)


def test_an_optimiser_of_another_model_is_a_fault() -> None:
    (model, _), (_, stranger) = small(), small()
    with pytest.raises(ValueError, match="not the model's"):
        gather_state(model, [stranger], 0, {})
    model, twice = small()
    with pytest.raises(ValueError, match="one parameter twice"):
        gather_state(model, [twice, torch.optim.RMSprop(model[0].parameters())], 0, {})  # type: ignore[index]
    model, _ = small()
    nadam = torch.optim.NAdam(model.parameters())
    learn(model, nadam, 0)
    with pytest.raises(ValueError, match=r"nadam keeps mu_product of 0\.weight, which no checkpoint can hold"):
        gather_state(model, [nadam], 1, {})


Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
OTHERS: dict[str, tuple[Make, set[str]]] = {
    "plain": (lambda given: torch.optim.RMSprop(given), {"rmsprop.step", "rmsprop.square_avg"}),
    "centred": (
        lambda given: torch.optim.RMSprop(given, momentum=0.9, centered=True),
        {"rmsprop.step", "rmsprop.square_avg", "rmsprop.momentum_buffer", "rmsprop.grad_avg"},
    ),
    "amsgrad": (
        lambda given: torch.optim.Adam(given, amsgrad=True),
        {"adam.step", "adam.exp_avg", "adam.exp_avg_sq", "adam.max_exp_avg_sq"},
    ),
    "momentum": (lambda given: torch.optim.SGD(given, 0.01, momentum=0.9), {"sgd.momentum_buffer"}),
    "nothing": (lambda given: torch.optim.SGD(given, 0.01), set()),
}


def with_others(make: Make) -> tuple[nn.Module, list[torch.optim.Optimizer]]:
    """The convolution under Adam, all else under another optimiser: a number without dimensions too."""
    model, _ = small()
    model.register_parameter("scale", nn.Parameter(torch.tensor(2.0, dtype=torch.float64)))
    first = list(model[0].parameters())  # type: ignore[index]
    rest = [value for value in model.parameters() if all(value is not one for one in first)]
    return model, [torch.optim.Adam(first, lr=1e-2, fused=True), make(rest)]


def learn_with(model: nn.Module, optimisers: list[torch.optim.Optimizer], step: int) -> None:
    for optimiser in optimisers:
        optimiser.zero_grad()
    images = torch.randn(2, 3, 4, 4, generator=generator(step))
    (model(images).square().mean() * model.scale).backward()  # type: ignore[operator]
    for optimiser in optimisers:
        optimiser.step()


@pytest.mark.parametrize("name", OTHERS)
def test_other_optimisers_beside_adam(tmp_path: Path, name: str) -> None:
    make, kept = OTHERS[name]
    model, optimisers = with_others(make)
    for step in range(3):
        learn_with(model, optimisers, step)
    save_checkpoint(tmp_path, gather_state(model, optimisers, 3, {}))
    state = load_step(tmp_path, 3)
    assert {key for key in state.tensors if key.endswith(".2.weight")} == {
        f"{one}.2.weight" for one in kept | {"model"}
    }
    assert {key for key in state.tensors if key.endswith(".scale")} == {f"{one}.scale" for one in kept | {"model"}}
    other, restored = with_others(make)
    restore_state(state, other, restored)
    for one, again in zip(optimisers, restored, strict=True):
        pairs = zip(one.state.values(), again.state.values(), strict=True)
        for entries, found in pairs:
            assert {key: (value.dtype, value.shape, value.stride()) for key, value in entries.items()} == {
                key: (value.dtype, value.shape, value.stride()) for key, value in found.items()
            }
    for step in (3, 4):
        learn_with(model, optimisers, step)
        learn_with(other, restored, step)
    assert same(gather_state(model, optimisers, 5, {}), gather_state(other, restored, 5, {}))


@pytest.mark.parametrize("name", ["plain", "centred", "amsgrad"])
def test_what_an_optimiser_kept_must_be_whole(name: str) -> None:
    """One tensor gone, or one kind of tensor gone altogether: refused before anything has changed."""
    make, kept = OTHERS[name]
    model, optimisers = with_others(make)
    learn_with(model, optimisers, 0)
    state = gather_state(model, optimisers, 1, {})
    other, fresh = with_others(make)
    untouched = gather_state(other, fresh, 0, {})
    for kind in sorted(kept):
        for gone in (f"{kind}.2.weight", kind + "."):
            tensors = {key: value for key, value in state.tensors.items() if not key.startswith(gone)}
            with pytest.raises(UserError, match=f"does not fit this model: missing or unknown tensors .*{kind}"):
                restore_state(TrainState(1, tensors, {}), other, fresh)
    assert same(gather_state(other, fresh, 0, {}), untouched)
    fewer, lone = with_others(lambda given: torch.optim.Adadelta(given))
    with pytest.raises(UserError, match="missing or unknown tensors"):
        restore_state(state, fewer, lone)


def test_facts_are_plain_json(tmp_path: Path) -> None:
    facts = {
        "inf": float("inf"),
        "list": (1, float("nan")),
        "scalar": torch.tensor(0.5),
        7: True,
        "path": Path("a/b"),
        "count": torch.tensor(3),
        "none": None,
    }
    plain = {"inf": None, "list": [1, None], "scalar": 0.5, "7": True, "path": "a/b", "count": 3, "none": None}
    model, optimiser = small()
    state = gather_state(model, [optimiser], 0, facts)
    assert state.facts == plain
    save_checkpoint(tmp_path, TrainState(0, state.tensors, facts))
    loaded = load_step(tmp_path, 0)
    assert same(loaded, state)
    with pytest.raises(TypeError, match="Module cannot be written"):
        finite_json({"model": nn.Module()})


def test_odd_values_survive(tmp_path: Path) -> None:
    """NaN with a payload, -0, denormals, whole numbers, booleans, bfloat16, nothing at all."""
    bits = torch.tensor([0x7FC00123, -0x80000000, 1], dtype=torch.int32).view(torch.float32)
    tensors = {"a": bits, "b": torch.tensor([2**62]), "c": torch.tensor([True]), "e": torch.zeros(0, 3)}
    save_checkpoint(tmp_path, TrainState(7, tensors, {}))
    loaded = load_step(tmp_path, 7)
    assert same(loaded, TrainState(7, tensors, {}))
    assert loaded.tensors["a"].view(torch.int32).tolist() == [0x7FC00123, -0x80000000, 1]
    brief = TrainState(8, {"d": torch.ones(2, dtype=torch.bfloat16)}, {})
    save_checkpoint(tmp_path, brief)
    assert torch.equal(load_step(tmp_path, 8).tensors["d"], brief.tensors["d"])


# --- which ones stay


def test_the_last_three_and_pinned_steps_stay(tmp_path: Path) -> None:
    for step in range(0, 80, 10):
        path = save_checkpoint(tmp_path, made(step), pinned=[20, 1000])
        assert path == tmp_path / f"step-{step:08d}.safetensors"
    assert steps(tmp_path) == [20, 50, 60, 70]
    save_checkpoint(tmp_path, made(80), keep=1, pinned=[20, 60])
    assert steps(tmp_path) == [20, 60, 80]
    save_checkpoint(tmp_path, made(90), keep=0)
    assert steps(tmp_path) == [90]
    save_checkpoint(tmp_path, made(123_456_789))
    assert names(tmp_path)[-1] == "step-123456789.safetensors"
    assert is_made(load_newest(tmp_path, no_warning))


def test_the_sidecar_describes_the_file(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, made(12_000))
    values = json.loads((tmp_path / "step-00012000.json").read_text())
    assert values.pop("seal")
    assert values == {
        "format_version": 1,
        "step": 12_000,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bytes": path.stat().st_size,
        "facts": {"loss": 12_000 / 7},
    }


def test_leftovers_are_swept_and_strangers_are_not(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, made(1))
    leftovers = ["step-00000002.safetensors", "step-00000003.safetensors.tmp", "step-00000002.json.tmp"]
    strangers = ["notes.txt", "step-2.safetensors", "step-00000002.bin", "other.tmp", "step-00000009.json.bak"]
    for name in leftovers + strangers:
        (tmp_path / name).write_bytes(b"x" * 10)
    (tmp_path / "drafts.tmp").mkdir()
    (tmp_path / "drafts.tmp" / ".tmpAbCd").write_bytes(b"x" * 10)
    save_checkpoint(tmp_path, made(4))
    ours = [f"step-{step:08d}.{end}" for step in (1, 4) for end in ("json", "safetensors")]
    assert names(tmp_path) == sorted(ours + strangers)


def test_steps_of_an_abandoned_future_go(tmp_path: Path) -> None:
    """The newest was damaged, training went on from the one before it."""
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, made(step))
    flip(tmp_path / "step-00000003.safetensors", 0.5)  # of the right size: only the checksum tells
    loaded = load_newest(tmp_path, lambda line: None)
    assert loaded is not None
    assert loaded.step == 2
    save_checkpoint(tmp_path, made(2), pinned=[3])
    assert steps(tmp_path) == [1, 2]


def test_cut_off_ones_do_not_take_the_place_of_good_ones(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, made(step))
    (tmp_path / "step-00000002.safetensors").write_bytes(b"short")
    save_checkpoint(tmp_path, made(4))
    assert steps(tmp_path) == [1, 3, 4]
    (tmp_path / "step-00000003.safetensors").unlink()
    save_checkpoint(tmp_path, made(5))
    assert steps(tmp_path) == [1, 4, 5]


def test_saving_a_step_again(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, made(1))
    again = TrainState(1, {"model.a": torch.ones(3)}, {"new": True})
    save_checkpoint(tmp_path, again)
    loaded = load_newest(tmp_path, no_warning)
    assert loaded is not None
    assert same(loaded, again)


# --- damage

Damage = Callable[[Path, Path], object]


def flip(path: Path, where: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(where * (len(content) - 1))] ^= 0x10
    path.write_bytes(content)


DAMAGES: dict[str, tuple[Damage, str]] = {
    "header": (lambda data, sidecar: flip(data, 0.0), "00000002.safetensors"),
    "names": (lambda data, sidecar: flip(data, 0.01), "00000002.safetensors"),
    "middle": (lambda data, sidecar: flip(data, 0.5), "00000002.safetensors"),
    "end": (lambda data, sidecar: flip(data, 1.0), "00000002.safetensors"),
    "truncated": (lambda data, sidecar: os.truncate(data, 2000), "00000002.safetensors: damaged .2000 bytes"),
    "longer": (lambda data, sidecar: data.write_bytes(data.read_bytes() + b"\0"), "00000002.safetensors"),
    "empty": (lambda data, sidecar: data.write_bytes(b""), "00000002.safetensors"),
    "missing data": (lambda data, sidecar: data.unlink(), "00000002.safetensors: no such file"),
    "a folder": (lambda data, sidecar: (data.unlink(), data.mkdir()), "00000002.safetensors: not a regular"),
    "missing json": (lambda data, sidecar: sidecar.unlink(), "00000002.safetensors: never completed"),
    "empty json": (lambda data, sidecar: sidecar.write_bytes(b""), "00000002.json"),
    "cut json": (lambda data, sidecar: os.truncate(sidecar, 60), "00000002.json: damaged JSON"),
    "another json": (lambda data, sidecar: sidecar.write_text("[]"), "00000002.json"),
    "json of another step": (
        lambda data, sidecar: shutil.copy(sidecar.with_name("step-00000001.json"), sidecar),
        "00000002.json: damaged .it is of step 1",
    ),
    "data of another step": (
        lambda data, sidecar: shutil.copy(data.with_name("step-00000001.safetensors"), data),
        "00000002.safetensors: damaged .its checksum",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_newest_is_skipped(tmp_path: Path, name: str) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, made(step))
    damage, message = DAMAGES[name]
    damage(tmp_path / "step-00000002.safetensors", tmp_path / "step-00000002.json")
    said: list[str] = []
    loaded = load_newest(tmp_path, said.append)
    assert loaded is not None
    assert loaded.step == 1
    assert is_made(loaded)
    assert len(said) == 1
    with pytest.raises(AssertionError, match=message):
        no_warning(said[0])
    with pytest.raises(UserError):
        load_step(tmp_path, 2)


def test_no_byte_is_taken_on_trust(tmp_path: Path) -> None:
    """Every byte of both files, flipped: skipped, unless the JSON says the same as before (white space)."""
    for step in (1, 2):
        save_checkpoint(tmp_path, made(step, size=4))
    tried = 0
    for path in (tmp_path / "step-00000002.safetensors", tmp_path / "step-00000002.json"):
        content = path.read_bytes()
        for place in range(len(content)):
            damaged = bytearray(content)
            damaged[place] ^= 1 << random.Random(place).randrange(8)
            path.write_bytes(damaged)
            loaded = load_newest(tmp_path, lambda line: None)
            assert is_made(loaded, size=4)
            assert loaded is not None
            assert loaded.step == 1 or (path.suffix == ".json" and json.loads(damaged) == json.loads(content))
            tried += loaded.step == 1
        path.write_bytes(content)
    assert is_made(load_newest(tmp_path, no_warning), size=4)
    assert tried > 400


def test_several_damaged_ones_are_skipped(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, made(step))
    flip(tmp_path / "step-00000003.safetensors", 0.5)
    flip(tmp_path / "step-00000002.json", 0.5)
    said: list[str] = []
    loaded = load_newest(tmp_path, said.append)
    assert loaded is not None
    assert loaded.step == 1
    assert ["step-00000003" in said[0], "step-00000002" in said[1]] == [True, True]


def test_only_damaged_ones_are_an_error(tmp_path: Path) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, made(step))
        flip(tmp_path / f"step-{step:08d}.safetensors", 0.5)
    with pytest.raises(UserError, match="all 2 checkpoints are damaged"):
        load_newest(tmp_path, lambda line: None)
    for path in tmp_path.glob("*.json"):  # a sweep would otherwise remove what somebody may still repair
        path.unlink()
    with pytest.raises(UserError, match="all 2 checkpoints are damaged"):
        load_newest(tmp_path, lambda line: None)


def test_none_yet(tmp_path: Path) -> None:
    assert load_newest(tmp_path / "nowhere", no_warning) is None
    assert load_newest(tmp_path, no_warning) is None
    (tmp_path / "step-00000001.safetensors").write_bytes(b"the first save was cut off")
    assert load_newest(tmp_path, lambda line: None) is None
    with pytest.raises(UserError, match=r"step-00000005\.json: no such file"):
        load_step(tmp_path, 5)


def test_a_newer_format_is_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, made(1))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT_VERSION", 2)
        save_checkpoint(tmp_path, made(2))
        assert is_made(load_newest(tmp_path, no_warning))
    with pytest.raises(UserError, match="format version 2, newer than 1: please update"):
        load_newest(tmp_path, no_warning)


def test_pickles_are_never_read(tmp_path: Path) -> None:
    """Not even with the right checksum."""
    save_checkpoint(tmp_path, made(1))
    torch.save({"a": torch.ones(1)}, tmp_path / "step-00000001.safetensors")
    data = (tmp_path / "step-00000001.safetensors").read_bytes()
    sidecar = checkpoint._sidecar(made(1), hashlib.sha256(data).hexdigest(), len(data))
    files.write_json(tmp_path / "step-00000001.json", sidecar)
    with pytest.raises(UserError, match=r"step-00000001\.safetensors: damaged"):
        load_step(tmp_path, 1)


# --- the disk


def test_everything_is_flushed_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data before its name, names before what relies on them, removal last."""
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, made(step))
    events: list[str] = []
    replace, unlink = os.replace, Path.unlink

    def flushed(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        whole = path.is_dir() or path.stat().st_size > 100
        events.append(f"flush {path.name if path != tmp_path else 'folder'}{'' if whole else ' (empty)'}")

    def renamed(source: Path, target: Path) -> None:
        events.append(f"name {target.name}")
        replace(source, target)

    def removed(path: Path, missing_ok: bool = False) -> None:
        events.append(f"remove {path.name}")
        unlink(path, missing_ok)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr(Path, "unlink", removed)
    save_checkpoint(tmp_path, made(4))
    assert events == [
        "flush step-00000004.safetensors",
        "name step-00000004.safetensors",
        "flush folder",
        "flush step-00000004.json.tmp",
        "name step-00000004.json",
        "flush folder",
        "remove step-00000001.json",
        "remove step-00000001.safetensors",
        "flush folder",
    ]


def strike_at(count: int) -> None:
    """Kill this process at the given one of its dealings with the disk, before or in the middle of it."""
    fatal = fatal_at(count)
    for name in ("fsync", "replace", "mkdir", "chmod", "rmdir"):
        setattr(os, name, fatal(getattr(os, name)))
    Path.unlink = fatal(Path.unlink)  # type: ignore[method-assign]
    checkpoint.save_file = fatal(checkpoint.save_file)
    files.open = fatal(open)  # type: ignore[attr-defined]


OTHER_THREE = TrainState(3, {"model.a": torch.ones(50)}, {"loss": 0.5})
SAVED_NEXT = {
    "a new step": (made(4), [3, 4]),
    "the same again": (made(3), [3]),
    # Between the two renames the step is neither the old nor the new one, and its checksum says so.
    "a step anew": (OTHER_THREE, [3, 2, 3]),
}


@pytest.mark.parametrize("name", SAVED_NEXT)
def test_killed_at_every_dealing_with_the_disk(tmp_path: Path, name: str) -> None:
    """A save cut off everywhere: the newest is whole, and the next save cleans up."""
    state, expected = SAVED_NEXT[name]
    outcomes: list[int] = []
    for count in range(100):
        folder = tmp_path / str(count)
        three_saved(folder, 1000)
        code = in_child(lambda count=count, folder=folder: (strike_at(count), save_checkpoint(folder, state)))  # type: ignore[misc]
        loaded = load_newest(folder, lambda line: None)
        assert loaded is not None
        assert is_made(loaded) or same(loaded, state)
        outcomes.append(loaded.step)
        save_checkpoint(folder, made(5))
        assert steps(folder) == [loaded.step - 1, loaded.step, 5]  # the last good ones
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert len(outcomes) > 6
    assert [step for step, _ in itertools.groupby(outcomes)] == expected


LARGE = 500_000


def save_on_and_on(folder: Path, first: int) -> None:
    for step in range(first, 10**6):
        save_checkpoint(folder, made(step, LARGE))


def kill_at_random(folder: Path, times: int, seed: int) -> int:
    """Step reached by a saver that is killed again and again."""
    moments, newest = random.Random(seed), 0
    for _ in range(times):
        killed_after(lambda first=newest + 1: save_on_and_on(folder, first), moments.uniform(0.0, 0.15))  # type: ignore[misc]
        loaded = load_newest(folder, lambda line: None)
        assert loaded is None or is_made(loaded, LARGE)
        assert (loaded.step if loaded else 0) >= newest
        newest = loaded.step if loaded else 0
        if folder.exists():
            assert len(list(folder.iterdir())) <= 2 * 3 + 4
    return newest


def test_killed_at_random_moments(tmp_path: Path) -> None:
    assert kill_at_random(tmp_path / "run", times=10, seed=0) > 0


@pytest.mark.soak
def test_killed_at_a_hundred_random_moments(tmp_path: Path) -> None:
    assert kill_at_random(tmp_path / "run", times=100, seed=1) > 10


def refused(work: Callable[[], object], *words: str) -> Callable[[], None]:
    """Work that must end in one clear line with these words."""

    def attempt() -> None:
        with pytest.raises(UserError) as caught:
            work()
        message = str(caught.value)
        assert "\n" not in message
        assert all(word in message for word in words), message

    return attempt


def three_saved(folder: Path, size: int) -> dict[str, bytes]:
    for step in (1, 2, 3):
        save_checkpoint(folder, made(step, size))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_disk_that_fills_while_writing(tmp_path: Path) -> None:
    """For real: the system refuses to let the file grow."""
    before = three_saved(tmp_path, 20_000)
    save = refused(lambda: save_checkpoint(tmp_path, made(4, 20_000)), "step-00000004.safetensors", "File too large")
    assert in_child(lambda: (limit_files(50_000), save())) == 0
    assert contents(tmp_path) == before
    assert is_made(load_newest(tmp_path, no_warning), 20_000)


@pytest.mark.parametrize("failing", [1, 3])
def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    """At the tensors or at the JSON behind them, as late as in the flush."""
    before, calls = three_saved(tmp_path, 100), iter(range(1, 100))

    def full(handle: int) -> None:
        if next(calls) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    refused(lambda: save_checkpoint(tmp_path, made(4, 100)), "disk full while writing", "step-00000004")()
    assert contents(tmp_path) == before
    save_checkpoint(tmp_path, made(4, 100))
    assert steps(tmp_path) == [2, 3, 4]


def test_a_disk_without_room_is_refused_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = three_saved(tmp_path, 100)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    refused(lambda: save_checkpoint(tmp_path, made(4, 100)), "only 1000 bytes are free")()
    assert contents(tmp_path) == before


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that others may enter, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_folder_without_permission(open_folder: Path) -> None:
    folder = open_folder / "checkpoints"
    before = three_saved(folder, 100)
    folder.chmod(0o555)

    def attempt() -> None:
        give_up_rights()
        refused(lambda: save_checkpoint(folder, made(4)), "no permission while writing", str(folder))()
        assert is_made(load_newest(folder, no_warning), 100)

    assert in_child(attempt) == 0
    assert contents(folder) == before


def test_a_file_without_permission_is_not_damage(open_folder: Path) -> None:
    """Going on from an older one would throw the newest away."""
    three_saved(open_folder, 100)
    (open_folder / "step-00000003.safetensors").chmod(0)
    load = refused(lambda: load_newest(open_folder, no_warning), "no permission while reading", "step-00000003")
    assert in_child(lambda: (give_up_rights(), load())) == 0


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, calls = three_saved(tmp_path, 100), iter(range(100))
    stop_at = 0

    def interrupted(handle: int) -> None:
        if next(calls) == stop_at:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    for stop_at in range(3):  # noqa: B007 - read by `interrupted`
        calls = iter(range(100))
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(tmp_path, made(4, 100))
        assert contents(tmp_path) == before


def test_saving_beside_training(tmp_path: Path) -> None:
    """A gathered state may be written by another thread while steps go on."""
    run = TinyRun(seed=1)
    run.take(0)
    state = run.gather(1)
    expected = {name: value.clone() for name, value in state.tensors.items()}
    thread = threading.Thread(target=save_checkpoint, args=(tmp_path, state))
    thread.start()
    run.take(1)
    thread.join()
    assert same(load_step(tmp_path, 1), TrainState(1, expected, state.facts))
