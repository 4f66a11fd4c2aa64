"""Settings survive their JSON; --set: every constant of an experiment by its dotted name, of the type of its field."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from viewslots.commands.training import train
from viewslots.errors import UserError
from viewslots.experiments import experiment, full_name
from viewslots.methods.registry import trainable_class
from viewslots.training import processes
from viewslots.training.plan import Asked, plan_run
from viewslots.training.settings import SECTIONS, RunSettings, fields_below, parse_changes, with_changes

SHORT: dict[str, Any] = {"steps": 4, "batch": 2, "device": "cpu"}


def plan(preset: str, *words: str, **options: Any) -> RunSettings:
    arguments = with_changes(options, parse_changes(words, experiment(preset)))
    return plan_run(Asked(preset=preset, data="live", stored_views=3, data_sha256=None, **arguments))


def leaves(values: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Dotted names and values, through dictionaries within dictionaries."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def test_settings_survive_their_json() -> None:
    wish = plan("tiny", method="per-view")
    assert RunSettings.from_json(json.loads(json.dumps(wish.to_json()))) == wish
    with pytest.raises(UserError, match="lacks seed"):
        RunSettings.from_json({key: value for key, value in wish.to_json().items() if key != "seed"})


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("seed", "a", "run.seed cannot be 'a': it must be a whole number"),
        ("seed", 2**63, "it must be a number of at most 63 bits"),
        ("views", "4", "run.views cannot be '4'"),
        ("precision", "fp8", "run.precision cannot be 'fp8': it must be one of bf16, fp32"),
        ("fast", "yes", "run.fast cannot be 'yes'"),
        ("pinned", "abc", "run.pinned cannot be"),
        ("log_every", 2.5, "run.log_every cannot be 2.5"),
        ("init", 7, "run.init cannot be 7"),
    ],
)
def test_damaged_settings_are_refused(name: str, value: object, problem: str) -> None:
    settings = plan_run(Asked(preset="tiny", data="live", stored_views=10, data_sha256=None))
    with pytest.raises(UserError, match=re.escape(problem)):
        RunSettings.from_json(settings.to_json() | {name: value})


@pytest.mark.parametrize("preset", ["clevr-m1", "compact", "umbra"])
def test_every_constant_of_config_json_can_be_named(preset: str) -> None:
    """Each given the value it has: the names are those of config.json, and nothing changes."""
    settings = plan(preset, init="some")
    for section in SECTIONS:
        values = leaves(settings.to_json()[section], section + ".")
        kind = type(getattr(settings, section))
        assert set(values) == {name for name, _ in fields_below(kind, section + ".")}
        written = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
        words = [f"{name}={'none' if text == 'null' else text}" for name, text in written.items()]
        assert plan(preset, *words, init="some") == settings


def test_values_have_the_type_of_their_field() -> None:
    words = ("schedule.temperature_start=2", "schedule.kl_ramp_steps=7", "model.nvil.normalise=False")
    settings = plan("tiny", *words, "model.nvil.channels=[4, 5]", "model.start.log_sigma=-1e-1", steps=24)
    assert repr(settings.schedule.temperature_start) == "2.0"
    assert (settings.schedule.kl_ramp_steps, settings.schedule.steps) == (7, 24)  # not squeezed once more
    assert settings.model.nvil.normalise is False
    assert settings.model.nvil.channels == (4, 5)
    assert settings.model.start.log_sigma == -0.1
    tiny = experiment("tiny")
    assert settings.schedule.softness_start == tiny.schedule.softness_start
    assert settings.model.object_decoder == tiny.model.object_decoder


@pytest.mark.parametrize(
    "change",
    [
        {"method": ["ocloc"]},
        {"model": 3},
        {"model": []},
        {"schedule": None},
        {"optimisation": "adam"},
        {"pinned": 7},
        {"pinned": ["a"]},
        {"views": 10**9},
        {"precision": ["fp32"]},
    ],
    ids=str,
)
def test_a_damaged_configuration_is_one_error(change: dict[str, Any]) -> None:
    values = json.loads(
        json.dumps(plan_run(Asked(preset="tiny", data="live", stored_views=3, data_sha256=None)).to_json())
    )
    assert RunSettings.from_json(values)
    with pytest.raises(UserError, match=next(iter(change))):
        RunSettings.from_json(values | change)


ODD: tuple[Any, ...] = (None, True, -1, 1.5, 10**9, 10**30, -1e308, "x", [], {}, [None], [[1, None]], {"a": 1})


EVERY_METHOD = ("tiny", "umbra", "tiny-clevr", "gmioo/dsprites", "space/dsprites", "mulmon/clevr-m1")


@pytest.mark.parametrize("preset", EVERY_METHOD)
def test_any_value_at_any_place_is_taken_or_one_error(preset: str) -> None:
    """Of a run's config.json, which a user or a stranger may have edited: networks can be made of whatever is taken."""
    settings = plan_run(Asked(preset=preset, data="live", stored_views=10, data_sha256=None, init="x"))
    known = json.loads(json.dumps(settings.to_json()))
    for place in places(known):
        for odd in ODD:
            values = copy.deepcopy(known)
            holder = values
            for name in place[:-1]:
                holder = holder[name]
            holder[place[-1]] = odd
            try:
                found = RunSettings.from_json(values)
            except UserError:
                continue
            if place[0] == "model":
                with torch.device("meta"):
                    trainable_class(found.method)(found.model)


def places(values: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All values of a JSON, also those within others."""
    inner = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for name, value in inner:
        yield (*way, name)
        yield from places(value, (*way, name))


def test_changes_that_are_right_only_together() -> None:
    grow = "model.{}_decoder.final_scale=8"
    settings = plan("tiny", "model.image_size=64", grow.format("object"), grow.format("background"))
    assert settings.model.image_size == 64
    with pytest.raises(UserError, match="pictures of 32x32, but image_size is 64x64"):
        plan("tiny", "model.image_size=64")


def test_fields_with_an_option_of_their_own_mean_the_same() -> None:
    words = ("schedule.steps=24", "optimisation.batch_size=3", "optimisation.learning_rate=1e-4")
    assert plan("tiny", *words) == plan("tiny", steps=24, batch=3, learning_rate=1e-4)
    with pytest.raises(UserError, match=r"--learning-rate and --set optimisation\.learning_rate are the same"):
        plan("tiny", "optimisation.learning_rate=1", learning_rate=1e-4)


def test_a_second_stage_may_be_begun_from_nothing() -> None:
    with pytest.raises(UserError, match="--init FIRST"):
        plan("clevr-m3")
    assert plan("clevr-m3", "optimisation.pretrained_preset=none").optimisation.pretrained_preset is None


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("schedule.temprature=2", r"no such field; known are schedule\.steps, schedule\.temperature_start, .*scale$"),
        ("model.nvil=2", r"no such field; known are .*model\.nvil\.momentum"),
        ("steps=2", "unknown section 'steps'; known are model, schedule, optimisation"),
        ("schedule.steps", "give section.field=value, such as"),
        ("=2", "--set =2: give section.field=value, such as"),
        ("first=2", "--set first: each `first.` goes back one stage, but the experiment has none before its last"),
        ("schedule.steps=1.5", "--set schedule.steps=1.5: must be a whole number"),
        ("schedule.softness_end=soft", "must be a number"),
        ("model.nvil.normalise=yes", "must be true or false"),
        ("model.object_decoder.stages=x", "must be a JSON list"),
        ("model.object_decoder.stages=[[1,2]]", r"model\.\*_decoder\.stages cannot be"),
        ("schedule.temperature_end=0", r"schedule\.temperature_end cannot be 0\.0: it must be above 0"),
        ("schedule.compactness_start=nan", r"schedule\.compactness_start cannot be nan: it must be a number"),
        ("optimisation.decay_steps=0", r"optimisation\.decay_steps cannot be 0: it must be 1 or more"),
        ("optimisation.learning_rate=-1", r"optimisation\.learning_rate cannot be -1\.0: it must be above 0"),
    ],
)
def test_what_cannot_be(word: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan("tiny", word)
    with pytest.raises(UserError, match="given twice"):
        plan("tiny", "schedule.steps=1", "schedule.steps=2")


def test_presets_of_different_methods_have_different_constants() -> None:
    assert plan("umbra", "model.darkest=0.5", "schedule.costs_until=1", init="some").method == "umbra"
    with pytest.raises(UserError, match="no such field"):
        plan("compact", "model.darkest=0.5")
    for preset, method in (("umbra", "per-view"), ("umbra", "ocloc"), ("compact", "umbra")):
        with pytest.raises(UserError, match=f"--method {method} is not for the experiment {full_name(preset)}"):
            plan(preset, method=method)


def test_changes_are_in_the_folder_and_bind_a_resumed_run(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    train("tiny", run=run, data=str(shapes), set_=("schedule.temperature_start=2",), **SHORT)
    config = json.loads((run / "config.json").read_text())["config"]
    assert config["schedule"]["temperature_start"] == 2.0
    first = capsys.readouterr().out
    train(run=run, resume=True, device="cpu", set_=("schedule.temperature_start=2.0",))
    assert capsys.readouterr().out == first
    with pytest.raises(UserError, match=r"begun with --set schedule\.temperature_start 2\.0, not 3\.0"):
        train(run=run, resume=True, device="cpu", set_=("schedule.temperature_start=3",))


def test_seeds_hand_changes_on_and_resume_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[int, Any] = {}
    monkeypatch.setattr(
        processes, "run_seeds", lambda words, say: asked.update(words) or processes.SeedResults({}, {}, 0)
    )
    (tmp_path / "seed-4").mkdir()
    (tmp_path / "seed-4" / "config.json").touch()
    change = ("schedule.temperature_start=2", "model.alpha=3")
    with pytest.raises(SystemExit) as left:
        train("tiny", run=tmp_path, data="live", seeds="3,4", set_=change, resume=True, fast=False, learning_rate=0.1)
    assert left.value.code == 0
    common = "train tiny --data live --learning-rate 0.1 --device auto --set {} --set {}".format(*change).split()
    for seed, again in ((3, []), (4, ["--resume"])):
        own = ["--seed", str(seed), "--run", str(tmp_path / f"seed-{seed}")]
        assert asked[seed] == [*common, *own, *again, "--no-fast"]
    asked.clear()
    with pytest.raises(UserError, match="unknown section"):
        train("tiny", run=tmp_path, data="live", seeds="3,4", set_=("x=1",))
    assert not asked


def test_a_part_that_the_given_networks_lack_is_named_with_them() -> None:
    """Details need boxes, which an older umbra does not have."""
    with torch.device("meta"):
        old = trainable_class("umbra")(experiment("umbra-tiny/clevr-m1").model)
    with pytest.raises(UserError, match="does not draw objects in boxes, so it can have no details"):
        plan("umbra-details/clevr-m1", init="old", start=old)
