"""What a table becomes: which commands, after which others, with how many steps and scenes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from viewslots.data.presets import DATA_PRESETS
from viewslots.errors import UserError
from viewslots.experiments import experiment, known_experiment
from viewslots.methods.names import entry
from viewslots.reproduce.plan import Asked, Planner, Task, record_plan
from viewslots.reproduce.tables import OCLOC_START, TABLES, Score, Short, Table
from viewslots.training.settings import parse_changes

STAGES = Table(
    "with a second stage",
    ("ocloc/clevr-m3", "umbra/clevr-m1", "kmeans/clevr-m1"),
    (Score("test1", views=4), Score("test2", views=2, new_views=4)),
    figure_views=4,
)


def planned(table: Table = STAGES, only: tuple[str, ...] = (), **asked: object) -> dict[str, Task]:
    tasks = Planner(table, Asked(**asked), only).tasks()
    assert len({task.name for task in tasks}) == len(tasks)
    return {task.name: task for task in tasks}


def whenever(task: Task) -> Task:
    """Trainings wait for all data, of which another choice of rows has others."""
    return replace(task, after=())


def option(task: Task, name: str) -> str:
    return task.words[task.words.index(name) + 1]


def test_rows_are_experiments_or_methods_that_learn_nothing() -> None:
    for table in TABLES.values():
        assert len(set(table.rows)) == len(table.rows)
        assert all(row.partition("/")[2] in DATA_PRESETS for row in table.rows)
        assert all(known_experiment(row) or not entry(row.partition("/")[0]).learns for row in table.rows)


def test_table_2_has_seven_methods_on_three_sets() -> None:
    """Glimpses go on from the row without."""
    table = TABLES["table2"]
    assert len(table.rows) == 21
    later = planned(table, ("umbra-glimpses",))
    for data in ("dsprites", "abstract", "clevr"):
        glimpses = later[f"train-umbra-glimpses-{data}-0"]
        assert option(glimpses, "--init") == f"runs/umbra-{data}-0"
        assert f"train-umbra-{data}-0" in glimpses.needs
    assert {row.partition("/")[2] for row in table.rows} == {"dsprites", "abstract", "clevr"}
    tasks = planned(table, ("slot-attention", "ocloc", "kmeans"))
    assert [name for name in tasks if name.startswith("score-kmeans")] == [
        f"score-kmeans-{data}-{split}-m1" for data in ("dsprites", "abstract", "clevr") for split in ("test1", "test2")
    ]
    train = tasks["train-ocloc-clevr-0"]
    assert train.words[:2] == ("train", "ocloc/clevr")
    assert (option(train, "--steps"), option(train, "--seed"), train.steps) == ("500000", "0", 500_000)
    words = tasks["data-clevr"].words
    assert words[:2] == ("make-data", "clevr")
    assert words[4:] == ("--train-scenes", "50000", "--valid-scenes", "1000", "--test-scenes", "1000")
    score = tasks["score-ocloc-clevr-0-test2-m1"]
    assert score.words[:2] == ("evaluate", "runs/ocloc-clevr-0")
    assert [option(score, name) for name in ("--split", "--views", "--repeats")] == ["test2", "1", "5"]
    figures = tasks["figures-clevr"].words
    assert figures[1] == "runs/slot-attention-clevr-0"
    assert figures[-3:] == ("--compare", "runs/ocloc-clevr-0", "kmeans")


def test_first_stages_are_trained_first_and_once() -> None:
    tasks = planned(seeds=2)
    names = [name for name in tasks if name.startswith("train")]
    assert len(names) == 6
    for seed in (0, 1):
        later, first = f"train-ocloc-clevr-m3-{seed}", f"ocloc-clevr-m1-{seed}"
        assert f"train-{first}" in tasks[later].needs
        assert option(tasks[later], "--init") == f"runs/{first}"
        assert names.index(f"train-{first}") < names.index(later)
        # Both stages of umbra learn from the same data: one command.
        umbra = tasks[f"train-umbra-clevr-m1-{seed}"]
        assert umbra.needs == ("data-clevr-m1",)
        assert "--init" not in umbra.words
        assert (option(umbra, "--steps"), umbra.steps) == ("26000", 26_000)
    # 150,000 + 100,000 steps wait behind the first stage.
    assert names[:2] == ["train-ocloc-clevr-m1-0", "train-ocloc-clevr-m1-1"]
    assert list(tasks)[:2] == ["data-clevr-m3", "data-clevr-m1"]


def test_later_stages_start_from_the_run_of_their_row() -> None:
    """`train` could run all three in one command, but umbra is a row too, and is trained once."""
    tasks = planned(TABLES["table2"], ("umbra", "umbra-glimpses"))
    looks = tasks["train-umbra-glimpses-dsprites-0"]
    assert (option(looks, "--init"), option(looks, "--steps"), looks.steps) == ("runs/umbra-dsprites-0", "5000", 5_000)
    assert looks.needs == ("data-dsprites", "train-umbra-dsprites-0")
    assert (tasks["train-umbra-dsprites-0"].steps, len(tasks["train-umbra-dsprites-0"].needs)) == (40_000, 1)
    assert planned(TABLES["table2"], ("umbra-glimpses",)).keys() >= {looks.name, "train-umbra-dsprites-0"}


def test_new_viewpoints_are_asked_of_those_who_can() -> None:
    tasks = planned()
    task = tasks["score-umbra-clevr-m1-0-test2-m2-new4"]
    assert task.words[0] == "estimate-viewpoints"
    assert (option(task, "--given"), option(task, "--new")) == ("2", "4")
    assert [name for name in tasks if name.startswith("score-kmeans")] == ["score-kmeans-clevr-m1-test1-m4"]


def test_the_report_waits_for_all_and_needs_none() -> None:
    tasks = planned()
    assert tasks["report"].needs == ()
    assert set(tasks["report"].after) == {name for name in tasks if name.startswith(("score", "figures"))}
    made = {name for name in tasks if name.startswith("data")}
    assert all(set(task.after) == made for task in tasks.values() if task.kind == "train")
    assert "figures-clevr-m1" not in planned(replace(STAGES, figure_scenes=0))
    assert "report" not in planned(replace(STAGES, scores=()))


def test_one_set_of_weights_is_scored_on_every_set() -> None:
    """Umbra's own table: its data sets have the large splits, and the mixed row is asked on those of the others."""
    tasks = planned(TABLES["umbra"], ("umbra-details/clevr-mixed", "umbra-details/clevr-m3"))
    sets = ["clevr-mixed", *(f"clevr-m{number}" for number in (1, 2, 3, 4))]
    assert {name for name in tasks if name.startswith("data-")} == {f"data-{name}" for name in sets}
    assert all(option(tasks[f"data-{name}"], "--large-scenes") == "1000" for name in sets[1:])
    assert "--large-scenes" not in tasks["data-clevr-mixed"].words  # on which nothing is scored
    assert option(planned(TABLES["umbra"], scale=1e-6)["data-clevr-m1"], "--large-scenes") == "4"
    assert "--large-scenes" not in planned()["data-clevr-m1"].words
    one = planned(TABLES["umbra"], only=("clevr-m3",))  # starts from clevr-m1; the row of that may follow
    assert one["data-clevr-m1"].words == tasks["data-clevr-m1"].words
    mixed = [name for name in tasks if name.startswith("score-umbra-details-clevr-mixed-0")]
    assert len(mixed) == 4 * len(TABLES["umbra"].scores)
    score = tasks["score-umbra-details-clevr-mixed-0-on-clevr-m3-test1-large-m4"]
    assert score.words[:2] == ("evaluate", "runs/umbra-details-clevr-mixed-0")
    assert [option(score, name) for name in ("--data", "--repeats")] == ["data/clevr-m3", "1"]
    assert "--starts" not in score.words
    assert set(score.needs) == {"data-clevr-m3", "train-umbra-details-clevr-mixed-0"}
    # From scratch to details: the half circle, the full one, glimpses.
    details, wide = tasks["train-umbra-details-clevr-mixed-0"], tasks["train-umbra-clevr-mixed-0"]
    assert (option(details, "--init"), option(wide, "--init")) == ("runs/umbra-clevr-mixed-0", "runs/umbra-clevr-m1-0")
    assert "--init" not in tasks["train-umbra-clevr-m1-0"].words
    plain = tasks["score-umbra-details-clevr-m3-0-test1-m4-plain"]
    assert [option(plain, name) for name in ("--starts", "--repeats")] == ["0", "5"]
    assert len({task.output for task in tasks.values()}) == len(tasks)


def test_scale_squeezes_steps_and_a_rehearsal_needs_few_scenes() -> None:
    tasks = planned(scale=0.1)
    assert tasks["train-umbra-clevr-m1-0"].steps == 2_600
    assert tasks["data-clevr-m1"].words[4:] == (
        *("--train-scenes", "5000"),
        *("--valid-scenes", "100", "--test-scenes", "100"),
    )
    small = planned(scale=0.0005)
    assert small["train-ocloc-clevr-m1-0"].steps == 75
    assert small["data-clevr-m1"].words[5::2] == ("250", "5", "5")
    least = planned(scale=1e-6)
    assert least["train-umbra-clevr-m1-0"].steps == 4
    assert least["data-clevr-m1"].words[5::2] == ("64", "4", "4")


def test_short_recipes() -> None:
    settings = {"first.model.sigma_x": 0.1, "model.nvil.channels": (4, 8), "optimisation.warmup_steps": 400}
    recipes = {"umbra/clevr-m1": Short(5_000, settings)}
    table = replace(STAGES, short=recipes)
    tasks = planned(table, ("umbra",), short=True, scale=0.5)
    task = tasks["train-umbra-clevr-m1-0"]
    assert task.steps == 2_500
    assert task.words[-6::2] == ("--set",) * 3
    assert task.words[-5::2] == (
        *("first.model.sigma_x=0.1", "model.nvil.channels=[4, 8]"),
        "optimisation.warmup_steps=200",
    )
    with pytest.raises(UserError, match="no short recipe for ocloc/clevr-m"):
        planned(table, short=True)


def test_every_row_of_table_2_has_a_short_recipe() -> None:
    """At most a fifth of the published steps (of umbra, as many), with settings that `train` takes."""
    short, published = (planned(TABLES["table2"], short=asked) for asked in (True, False))
    trainings = {name: task for name, task in short.items() if task.kind == "train"}
    assert len(trainings) == 18
    for name, task in trainings.items():
        assert task.steps <= published[name].steps / (1 if task.like.startswith("umbra") else 5)
        told = [task.words[n + 1] for n, word in enumerate(task.words) if word == "--set"]
        changes = parse_changes(told, experiment(task.like))
        assert len(changes) == len(told) > 0
        for setting, value in changes.items():
            assert not setting.endswith("_steps") or 0 < value <= task.steps
    first = experiment("ocloc-first/dsprites").model.start
    assert {f"model.start.{name}": getattr(first, name) for name in ("log_sigma", "shape_logit", "selection_gain")} == (
        OCLOC_START
    )


def test_tables_share_data_and_trainings() -> None:
    """In one folder the second table only asks more of the same runs."""
    first, second, third = (planned(TABLES[name]) for name in ("table1", "supplement", "figures"))
    trainings = {name for name, task in first.items() if task.kind in ("data", "train")}
    assert trainings == {name for name, task in second.items() if task.kind in ("data", "train")}
    assert trainings < set(third)
    for other in (second, third):
        assert all(whenever(other[name]) == whenever(first[name]) for name in trainings)
    scores = {name for name in first if name.startswith("score-")}
    assert len(scores) == 4 * 5
    # Word for word: folders that were begun by earlier versions go on.
    assert first["score-ocloc-clevr-m2-0-test1-m4"].command == (
        "viewslots evaluate runs/ocloc-clevr-m2-0 --split test1 --views 4 --data data/clevr-m2 --repeats 5 "
        "--out results/ocloc-clevr-m2-0-test1-m4.json"
    )
    assert not scores & set(second)
    assert "score-ocloc-clevr-m2-0-test2-m4-new4" in second
    assert "score-mulmon-clevr-m2-0-test2-m4-new4" in second
    assert not [name for name in second if "kmeans" in name and "new" in name]
    assert not [name for name in second if name.startswith("figures")]
    own = {name for name in third if name.startswith("figures-") and name.endswith("-0")}
    assert own == {f"figures-{method}-clevr-m{n}-0" for method in ("ocloc", "umbra-details") for n in (1, 2, 3, 4)}
    assert option(third["figures-dsprites"], "--views") == "1"
    assert option(third["figures-clevr-m4"], "--views") == "4"


def test_only_some_rows_are_the_same_tasks() -> None:
    """But for the figure, which shows those that are there. First stages of other data sets come along."""
    whole = planned()
    for only in (("umbra",), ("umbra/clevr-m1",), ("clevr-m3",), ("kmeans", "ocloc")):
        some = planned(only=only)
        assert set(some) < set(whole)
        for name, task in some.items():
            assert task.kind in ("figures", "report") or whenever(whole[name]) == whenever(task)
    assert "data-clevr-m1" in planned(only=("clevr-m3",))
    with pytest.raises(
        UserError, match="--only mulmon: no such row; give METHOD, DATA or METHOD/DATA; rows are ocloc/"
    ):
        planned(only=("mulmon",))
    with pytest.raises(UserError, match=r"no such row; did you mean kmeans\?"):
        planned(only=("kmean",))


@pytest.mark.parametrize(
    ("asked", "hint"), [({"scale": 0}, "--scale 0"), ({"scale": 2}, "--scale"), ({"seeds": 0}, "--seeds")]
)
def test_bad_questions(asked: dict[str, float], hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        Asked(**asked)


def test_a_folder_keeps_its_plan(tmp_path: Path) -> None:
    def record(asked: Asked, only: tuple[str, ...] = (), table: Table = STAGES) -> dict[str, object]:
        record_plan(tmp_path, asked, Planner(table, asked, only).tasks())
        return json.loads((tmp_path / "plan.json").read_text())

    asked = Asked(scale=0.5)
    first = record(asked, ("kmeans",))
    assert first["asked"] == {"scale": 0.5, "short": False, "seeds": 1}
    assert first["environment"]["torch"]
    grown = record(asked)
    assert set(first["commands"]) < set(grown["commands"])
    assert record(asked, ("umbra",))["commands"].keys() == grown["commands"].keys()
    for other, words in (
        (replace(asked, scale=0.25), "was begun with --scale 0.5, not --scale 0.25"),
        (replace(asked, seeds=2), "--seeds 1, not --seeds 2"),
        (replace(asked, short=True), "--no-short, not --short"),
    ):
        with pytest.raises(UserError, match=words):
            record_plan(tmp_path, other, [])
    scores = Planner(STAGES, asked).score_tasks("ocloc/clevr-m3")
    changed = [replace(task, words=(*task.words, "--seed", "1")) for task in scores]
    with pytest.raises(UserError, match="score-ocloc-clevr-m3-0-test1-m4 was another command"):
        record_plan(tmp_path, asked, changed)
