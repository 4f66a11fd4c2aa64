"""Lines around shapes: where they lie, whatever the size they are drawn in."""

import numpy as np
import pytest
import torch

from viewslots.viewpoints.outlines import hidden, outlines, svg_path


def area(line: np.ndarray) -> float:
    x, y = line[:, 0], line[:, 1]
    return abs(float(x @ np.roll(y, 1) - y @ np.roll(x, 1))) / 2


@pytest.mark.parametrize(("height", "width"), [(1.0, 1.0), (480.0, 640.0)])
def test_a_box_lies_where_it_is(height: float, width: float) -> None:
    shape = torch.zeros(12, 16)
    shape[3:9, 4:12] = 1
    (line,) = outlines(shape, height, width)
    np.testing.assert_array_equal(line[0], line[-1])
    step = np.array([width / 16, height / 12])
    np.testing.assert_allclose(line.min(0) / step, [4, 3], atol=0.2)
    np.testing.assert_allclose(line.max(0) / step, [12, 9], atol=0.2)
    assert area(line) == pytest.approx(0.25 * height * width, rel=0.06)


def test_shapes_at_the_border_are_closed_along_it() -> None:
    (line,) = outlines(torch.ones(8, 8), 100, 100)
    assert area(line) == pytest.approx(10_000, rel=0.01)
    assert line.min() >= 0
    assert line.max() <= 100


def test_holes_and_islands_are_lines_of_their_own() -> None:
    shape = torch.ones(24, 24)
    shape[8:16, 8:16] = 0
    shape[11:13, 11:13] = 1
    assert len(outlines(shape)) == 3
    assert outlines(torch.zeros(8, 8)) == []
    assert svg_path([]) == ""


def test_a_path_in_svg() -> None:
    line = np.array([[0.0, 0.0], [10.04, 0.0], [10.0, 5.0], [0.0, 0.0]])
    assert svg_path([line, line[:2]]) == "M0.0 0.0L10.0 0.0L10.0 5.0Z"


def test_what_is_hidden() -> None:
    complete, seen = torch.tensor([[1.0, 1.0, 0.2]]), torch.tensor([[1.0, 0.1, 0.0]])
    torch.testing.assert_close(hidden(complete, seen), torch.tensor([[0.0, 0.9, 0.2]]))
