"""Our results beside the paper's tables, with what they owe to renderer, schedule and seeds said next to them."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from viewslots.files import replacing
from viewslots.methods.names import entry
from viewslots.metrics.score import METRICS
from viewslots.protocol.results import FORMAT, SCORES, find_results
from viewslots.report.notes import general_notes, legend, result_notes
from viewslots.report.pages import Block, Cell, Folded, Heading, Notes, Row, Table, Text, markdown, page
from viewslots.report.rows import (
    DATASETS,
    MISSING,
    SPLITS,
    TRAINING,
    PaperTable,
    Result,
    difference_row,
    extra_rows,
    find_table,
    group_rows,
    our_cell,
    our_row,
    paper_cell,
    paper_row,
    scenes_in_words,
    title,
    training_row,
)

TITLE = "viewslots beside the OCLOC paper"
OVERVIEW = "ARI-O"

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Key = tuple[str, str, str, int, int | None]
"""Task, data set, split of the paper, views and new views: what makes a table."""

DISTINCTIONS: tuple[Callable[[Result], str], ...] = (
    lambda result: f"K = {result['slots']}",
    lambda result: str(result.get("which")),
    lambda result: f"seed {result.get('seed')}",
    lambda result: f"data set {str(result['data'].get('sha256'))[:8]}",
    lambda result: scenes_in_words(result["scenes"]),
)
"""What may tell results of one run in one table apart."""


def write_report(sources: Sequence[Path], out: Path) -> list[Path]:
    """report.md and report.html in the folder `out`."""
    found = find_results(sources, (FORMAT, SCORES))
    results = distinguished([result for _, result in found if result["format"] == FORMAT])
    masks = [item for item in found if item[1]["format"] == SCORES]
    blocks = (*(report_blocks(results) if results else ()), *scored_masks(masks))
    out.mkdir(parents=True, exist_ok=True)
    written = {"report.md": markdown(TITLE, blocks), "report.html": page(TITLE, blocks)}
    for name, text in written.items():
        with replacing(out / name) as draft:
            draft.write_text(text, encoding="utf-8", errors="backslashreplace")
    return [out / name for name in written]


def report_blocks(results: Sequence[Result]) -> Iterator[Block]:
    yield Notes(legend(results))
    yield from trainings(results)
    yield from overview(results)
    for key, same in sorted(_grouped(results, table_key).items(), key=lambda item: _order(item[0])):
        yield from section(key, same)
    yield Heading("Notes")
    yield Notes(general_notes(results))


def scored_masks(scored: Sequence[tuple[Path, Result]]) -> Iterator[Block]:
    """Anybody's masks, a table for each protocol, data set and number of views."""
    if scored:
        yield Heading("Masks from arrays")

    def place(item: tuple[Path, Result]) -> tuple[str, ...]:
        one = item[1]
        truth = " ".join(filter(None, (one["truth"], one["split"])))
        return one["protocol"]["name"], truth, f"{one['views']} view{'s' * (one['views'] != 1)} a scene"

    for (protocol, truth, views), same in sorted(_grouped(scored, place).items()):
        about = same[0][1]["protocol"]
        named = [item for path, one in same for item in _named_scores(path.stem, one)]
        columns = tuple(dict.fromkeys(column for _, scores in named for column in scores))
        rows = tuple(
            Row(name, tuple(_score(scores.get(column)) for column in columns), "ours") for name, scores in named
        )
        yield Table(("", *columns), rows, f"{protocol}, {truth}, {views}")
        yield Notes((f"{protocol}: {about['contract']}. After {about['paper']}",))


def _named_scores(file: str, scored: Result) -> Iterator[tuple[str, Mapping[str, float | None]]]:
    """The eight metrics have two conventions, other protocols one."""
    name = f"{file} ({scored['prediction']}, {scenes_in_words(scored['scenes'])})"
    for kind, words in {"scores": "", "pooled": ", pooled", "paper": ", by the appendix's formulas (paper)"}.items():
        if kind in scored:
            yield name + words, scored[kind]


def _score(value: float | None) -> Cell:
    return MISSING if value is None else Cell(f"{value:z.3f}")


def distinguished(results: Sequence[Result]) -> list[Result]:
    """Rows that would have one name in one table: what tells them apart is added to the names of their runs."""

    def name(result: Result) -> tuple[object, ...]:
        return *table_key(result)[:3], title(result)

    runs = [str(result.get("run")) for result in results]
    for same in _grouped(range(len(results)), lambda index: name(results[index])).values():
        tables = _grouped(same, lambda index: table_key(results[index])).values()
        rivals = [results[index] for table in tables if len(table) > 1 for index in table]
        telling = [tell for tell in DISTINCTIONS if len({tell(rival) for rival in rivals}) > 1]
        for table in tables:
            for number, index in enumerate(table, 1):
                words = [tell(results[index]) for tell in telling]
                if not words and len(table) > 1:
                    words = [f"no. {number}"]
                runs[index] = ", ".join([runs[index], *words])
    return [
        {**result, "run": run} if str(result.get("run")) != run else result
        for result, run in zip(results, runs, strict=True)
    ]


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """In the order of their first items."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def table_key(result: Result) -> Key:
    """Nothing vouches that imported data are the paper's, however their file is called."""
    data = result["data"]
    imported = data.get("source") or data.get("name")
    name = data.get("preset") or (f"{imported} (imported)" if imported else "unknown data")
    split = result["split"].removesuffix("-large")
    return result["task"], name, split, result["views"], result.get("new_views")


def _order(key: Key) -> tuple[object, ...]:
    """The paper's tables in its order, then everything else."""
    task, dataset, split, views, new = key
    known = list(DATASETS)
    place = known.index(dataset) if dataset in known else len(known)
    return place, dataset, task != "decomposition", split, views, new or 0


def section(key: Key, results: Sequence[Result]) -> Iterator[Block]:
    """One of the paper's tables (for one data set), or our numbers alone where the paper has none."""
    _, dataset, split, views, new = key
    results = sorted(results, key=lambda one: (not entry(one["method"]).learns, title(one)))
    paper = find_table(dataset, split, views, new)
    shown = DATASETS.get(dataset, dataset)
    seen = f"M = {views}" if new is None else f"viewpoint estimation, {views} given and {new} new views"
    yield Heading(f"{shown}, {SPLITS.get(split, split)}, {seen}")
    if paper is None:
        yield Text("The paper has no table for this.")
    columns = ("", *METRICS)
    yield Table(columns, compared_rows(results, paper), _caption(paper))
    rows = tuple(our_row(result, "paper") for result in results)
    yield Table(columns, rows, "By the appendix's formulas (paper), but for ARI-O, AMI-O: arg-max over objects alone")
    if extras := extra_rows(results):
        yield Table(("beyond the paper", *map(title, results)), extras)
    for result in results:
        if rows := part_rows(result):
            yield Folded(f"Parts of the test set: {title(result)}", (Table(("pooled", *METRICS), rows),))
    yield Notes(tuple(dict.fromkeys(note for result in results for note in result_notes(result, paper))))


def _caption(paper: PaperTable | None) -> str:
    convention = "Averaged as the published numbers were (pooled)"
    return convention if paper is None else f"{convention}; paper: {paper.name}"


def compared_rows(results: Sequence[Result], paper: PaperTable | None) -> tuple[Row, ...]:
    """Each row of the paper, and below it those of ours that are measured by it; the others at the end."""
    rows, left = [], list(results)
    for row in paper.rows if paper is not None else ():
        rows.append(paper_row(row))
        for result in [one for one in left if paper is not None and paper.row_beside(one["method"]) == row]:
            left.remove(result)
            rows += [our_row(result, "pooled"), difference_row(result, row)]
    return (*rows, *(our_row(result, "pooled") for result in left))


def part_rows(result: Result) -> tuple[Row, ...]:
    return (
        *group_rows(result.get("by_objects", {}), "objects:"),
        *group_rows(result.get("by_occlusion", {}), "occlusion:"),
    )


def trainings(results: Sequence[Result]) -> Iterator[Block]:
    """What each of several runs took, once."""
    rows = dict.fromkeys(row for result in results if (row := training_row(result)))
    if len(rows) > 1:
        yield Heading("Trainings")
        yield Table(("", *TRAINING), tuple(rows))


def overview(results: Sequence[Result]) -> Iterator[Block]:
    """Over the numbers of views, where there are several: does seeing more help?"""
    plain = [result for result in results if result["task"] == "decomposition"]
    places = sorted({table_key(result)[:3] for result in plain}, key=lambda place: _order((*place, 0, None)))
    tables = []
    for place in places:
        here = [result for result in plain if table_key(result)[:3] == place]
        views = sorted({result["views"] for result in here})
        if len(views) > 1:
            caption = f"{DATASETS.get(place[1], place[1])}, {SPLITS.get(place[2], place[2])}"
            tables.append(Table(("", *(f"M = {count}" for count in views)), overview_rows(here, place, views), caption))
    if tables:
        yield Heading(f"{OVERVIEW} by number of views (pooled)")
        yield from tables


def overview_rows(results: Sequence[Result], place: tuple[str, str, str], views: Sequence[int]) -> tuple[Row, ...]:
    papers = [find_table(place[1], place[2], count) for count in views]
    methods = dict.fromkeys(row.method for paper in papers if paper for row in paper.rows)
    rows = []
    for method in methods:
        found = [paper.row(method) if paper else None for paper in papers]
        cells = tuple(MISSING if row is None else paper_cell(row.scores.get(OVERVIEW)) for row in found)
        rows.append(Row(f"paper: {method}", cells, "paper"))
    for name, same in sorted(_grouped(results, title).items(), key=lambda item: item[0].startswith("floor")):
        ours = {result["views"]: result for result in same}
        cells = tuple(overview_cell(ours[count]) if count in ours else MISSING for count in views)
        rows.append(Row(name, cells, "floor" if name.startswith("floor") else "ours"))
    return tuple(rows)


def overview_cell(result: Result) -> Cell:
    return our_cell(result["pooled"][OVERVIEW], len(result["repeats"]))
