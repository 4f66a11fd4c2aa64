"""The camera turns: which frames, and what becomes of them in a file."""

import sys
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from figure_scenes import SIZE, as_bytes, scene
from PIL import Image

from viewslots.errors import UserError
from viewslots.figures.decompositions import sorted_objects, tinted
from viewslots.figures.video import GAP, save_gif, save_mp4, save_video, turning_frames
from viewslots.viewpoints.paths import tour

ZOOM = 192 // SIZE


def smooth_frames(count: int, height: int, width: int) -> np.ndarray:
    """A bright square that walks over a grey slope."""
    frames = np.empty((count, height, width, 3), np.uint8)
    frames[:] = np.linspace(60, 140, width, dtype=np.uint8)[None, None, :, None]
    for index in range(count):
        frames[index, 4:12, 3 * index : 3 * index + 8] = (230, 40, 60)
    return frames


def read_mp4(path: Path) -> tuple[dict[str, object], np.ndarray]:
    reader = imageio_ffmpeg.read_frames(str(path))
    about = next(reader)
    width, height = about["size"]
    return about, np.stack([np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader])


def test_frames_pass_all_viewpoints_and_come_back() -> None:
    one, count = scene(0, 4), 12
    frames = turning_frames([one], count)
    assert frames.shape == (count, 2 * SIZE * ZOOM + GAP, SIZE * ZOOM, 3)
    order = tour(one.views)
    for place, view in enumerate(order):
        shown = one.render(one.views[view])
        frame = frames[place * 3]
        above, below = frame[: SIZE * ZOOM : ZOOM, ::ZOOM], frame[SIZE * ZOOM + GAP :: ZOOM, ::ZOOM]
        np.testing.assert_allclose(above.astype(int), as_bytes(shown.image), atol=1)
        np.testing.assert_allclose(below.astype(int), tinted(shown.image, shown, sorted_objects(one)), atol=2)
        assert (frame[SIZE * ZOOM : SIZE * ZOOM + GAP] == 255).all()
    # The last frame is a third of the way from being back at the first: a video that repeats has no seam.
    last = one.views[order[-1]] / 3 + one.views[order[0]] * 2 / 3
    np.testing.assert_allclose(
        frames[-1][: SIZE * ZOOM : ZOOM, ::ZOOM].astype(int), as_bytes(one.render(last).image), atol=1
    )


def test_scenes_stand_side_by_side() -> None:
    scenes = [scene(0), scene(1)]
    both, width = turning_frames(scenes, 3), SIZE * ZOOM
    assert both.shape[2] == 2 * width + GAP
    np.testing.assert_array_equal(both[:, :, :width], turning_frames(scenes[:1], 3))
    np.testing.assert_array_equal(both[:, :, width + GAP :], turning_frames(scenes[1:], 3))


def test_a_video_has_all_frames_in_both_forms(tmp_path: Path) -> None:
    frames = smooth_frames(10, 48, 64)
    mp4, gif = save_video(frames, tmp_path / "video", rate=5)
    about, read = read_mp4(mp4)
    assert about["fps"] == 5
    assert about["codec"] == "h264"
    assert "yuv420p" in str(about["pix_fmt"])
    assert read.shape == frames.shape
    for index, (found, frame) in enumerate(zip(read, frames, strict=True)):
        assert np.abs(found.astype(int) - frame).mean() < 6
        square = found[6:10, 3 * index + 2 : 3 * index + 6].astype(int)
        assert np.abs(square - [230, 40, 60]).max() < 40, "each frame in its place"
    with Image.open(gif) as image:
        assert image.n_frames == 10
        assert image.size == (64, 48)
        assert image.info["loop"] == 0
        assert image.info["duration"] == 200
        for index, frame in enumerate(frames):
            image.seek(index)
            assert np.abs(np.asarray(image.convert("RGB")).astype(int) - frame).max() <= 12


def test_odd_sides_gain_a_white_line(tmp_path: Path) -> None:
    _, read = read_mp4(save_mp4(smooth_frames(3, 47, 63), tmp_path / "odd.mp4"))
    assert read.shape == (3, 48, 64, 3)
    assert read[:, -1, :-2].mean() > 200
    assert read[:, :-4, :-4].mean() < 180


def test_rare_colours_survive_the_palette(tmp_path: Path) -> None:
    """A whole video of greys with one small object of its own colour."""
    frames = np.random.default_rng(0).integers(60, 190, (6, 60, 60, 1), dtype=np.uint8).repeat(3, -1)
    frames[:, 27:33, 27:33] = (20, 90, 200)
    with Image.open(save_gif(frames, tmp_path / "rare.gif")) as image:
        found = np.asarray(image.convert("RGB"))
    assert np.abs(found[28:32, 28:32].astype(int) - [20, 90, 200]).max() <= 12


def test_a_video_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"video\.mp4: ffmpeg cannot write it"):
        save_mp4(smooth_frames(2, 16, 16), tmp_path / "missing" / "video.mp4")


def test_without_the_package_there_is_a_gif_and_no_mp4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)  # Python's own way to say: cannot be imported
    frames = smooth_frames(3, 16, 40)
    assert save_video(frames, tmp_path / "video") == [tmp_path / "video.gif"]
    with Image.open(tmp_path / "video.gif") as image:
        assert image.n_frames == 3
    assert not (tmp_path / "video.mp4").exists()
    with pytest.raises(UserError, match=r"video\.mp4: MP4 needs imageio-ffmpeg, which is missing"):
        save_mp4(frames, tmp_path / "video.mp4")
