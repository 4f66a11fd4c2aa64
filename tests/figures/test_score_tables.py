"""Tables of scores as figures: every number in its row and column."""

from typing import Any

from viewslots.figures.tables import score_table


def result(**means: float | None) -> dict[str, Any]:
    parts = {
        name.replace("_", "-"): None if mean is None else {"mean": mean, "std": mean / 100, "low": 0, "high": 1}
        for name, mean in means.items()
    }
    return {"pooled": parts}


def table(results: list[tuple[str, dict[str, Any]]]) -> list[list[Any]]:
    """Texts by rows, from above, then from left to right."""
    (axes,) = score_table(results, "pooled", "Scores").axes
    heights = sorted({text.get_position()[1] for text in axes.texts})
    low, high = axes.get_ylim()
    assert low > high, "heights grow downwards"
    rows = [[text for text in axes.texts if text.get_position()[1] == height] for height in heights]
    return [sorted(row, key=lambda text: text.get_position()[0]) for row in rows]


def test_numbers_stand_in_their_places() -> None:
    rows = table([("ours", result(ARI_A=0.25, OOA=0.5)), ("floor", result(ARI_A=0.75, OOA=None))])
    assert [[text.get_text() for text in row] for row in rows] == [
        ["", "ARI-A", "OOA"],
        ["ours", "0.250 ± 0.003", "0.500 ± 0.005"],
        ["floor", "0.750 ± 0.007", "N/A"],
    ]
    columns = [[text.get_position()[0] for text in row] for row in rows]
    assert columns[0] == columns[1] == columns[2]
    bold = [[text.get_fontweight() == "bold" for text in row] for row in rows]
    assert bold == [[False] * 3, [False, False, True], [False, True, False]]


def test_long_names_keep_clear_of_the_numbers() -> None:
    name = "ours: OCLOC, compact (a run with quite a name), test1, M = 4, K = 7"
    made = score_table([(name, result(ARI_A=0.5)), ("x", result(ARI_A=None))], "pooled", "Scores")
    made.canvas.draw()
    boxes = {text.get_text(): text.get_window_extent() for text in made.axes[0].texts}
    assert boxes[name].x1 < boxes["0.500 ± 0.005"].x0
    assert boxes["0.500 ± 0.005"].x1 <= made.bbox.x1
    assert boxes[name].x0 >= 0
