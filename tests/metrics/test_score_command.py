"""`viewslots score` and `viewslots bench metrics` as a user calls them, with good and with bad files."""

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from slow_metrics import slow_paper, slow_per_scene, slow_pooled
from toy_scenes import random_prediction, random_truth, slow_scenes

from viewslots import cli
from viewslots.bench import metrics as bench
from viewslots.data.exchange import npz
from viewslots.metrics import arrays
from viewslots.metrics.score import METRICS

Arrays = dict[str, Any]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def case(has_background: bool = True) -> tuple[Arrays, Arrays, Arrays]:
    """Arrays of a prediction and of its truth, and what the slow twins make of them."""
    rng = np.random.default_rng(0)
    truth = random_truth(rng, scenes=4)
    prediction = random_prediction(rng, truth, 4, has_background)
    scenes = slow_scenes(prediction, truth)
    expected = {"paper": slow_paper(scenes), "pooled": slow_pooled(scenes), "per_scene": slow_per_scene(scenes)}
    names = ("layer_masks", "complete_shapes", "presence", "depth_order")
    predicted = {name: getattr(prediction, name).numpy() for name in names}
    true = {name: getattr(truth, name).numpy() for name in ("segment", "shapes", "depth_order")}
    return predicted | {"has_background": np.bool_(has_background)}, true, expected


class Folder:
    """Where a test keeps its files, and the command run on them within this process."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch, output: pytest.CaptureFixture[str]) -> None:
        self.path, self._patch, self._output = path, patch, output

    def save(self, prediction: Arrays, truth: Arrays) -> None:
        np.savez(self.path / "pred.npz", **prediction)
        np.savez_compressed(self.path / "truth.npz", **truth)

    def score(self, *words: str) -> Any:
        files = [str(self.path / name) for name in ("pred.npz", "truth.npz")]
        self._patch.setattr(sys, "argv", ["viewslots", "score", *files, *words])
        cli.main()
        return json.loads(self._output.readouterr().out)

    def refused(self, prediction: Arrays, truth: Arrays) -> str:
        """Exit 1 with one line on stderr and nothing on stdout."""
        self.save(prediction, truth)
        return self.refused_files()

    def refused_files(self) -> str:
        with pytest.raises(SystemExit) as stopped:
            self.score()
        assert stopped.value.code == 1
        found = self._output.readouterr()
        assert found.out == ""
        assert found.err.startswith("viewslots: ")
        assert len(found.err.splitlines()) == 1
        return found.err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Folder:
    return Folder(tmp_path, monkeypatch, capsys)


def same(found: Arrays, expected: Arrays, tolerance: float = 1e-9) -> None:
    assert list(found["paper"]) == list(METRICS)
    for name in ("paper", "pooled"):
        assert found[name] == pytest.approx(expected[name], abs=tolerance)
    for name, values in expected["per_scene"].items():
        assert found["per_scene"][name] == pytest.approx(values, abs=tolerance)
    assert (found["scenes"], found["views"]) == (4, 2)


def test_in_a_process_of_its_own(folder: Folder) -> None:
    prediction, truth, expected = case()
    folder.save(prediction, truth)
    files = [str(folder.path / name) for name in ("pred.npz", "truth.npz", "out.json")]
    words = [sys.executable, "-m", "viewslots", "score", *files[:2], "--out", files[2]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr == ""
    same(json.loads(done.stdout), expected)
    assert json.loads(Path(files[2]).read_text()) == json.loads(done.stdout)


@pytest.mark.parametrize("has_background", [True, False])
@pytest.mark.parametrize("block", [1, 600, 2**25])
def test_scores_are_those_of_the_slow_twins_in_blocks_of_any_size(
    folder: Folder, block: int, has_background: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "NUMBERS_AT_ONCE", block)
    prediction, truth, expected = case(has_background)
    folder.save(prediction, truth)
    same(folder.score("--device", "cpu"), expected)


def test_bytes_mean_shares_of_255(folder: Folder) -> None:
    prediction, truth, _ = case()
    names = ("layer_masks", "complete_shapes")
    whole = prediction | {name: (prediction[name] * 255).round().astype(np.uint8) for name in names}
    folder.save(whole, truth)
    found = folder.score()
    folder.save(prediction | {name: whole[name] / 255.0 for name in names}, truth)
    expected = folder.score()
    same(found, expected, 1e-12)


@pytest.mark.parametrize("kind", ["<f2", "<f8", ">f4"])
def test_any_floats_and_any_order_of_axes_in_memory(folder: Folder, kind: str) -> None:
    prediction, truth, expected = case()
    names = ("layer_masks", "complete_shapes", "presence", "depth_order")
    other = {name: np.asfortranarray(prediction[name].astype(kind)) for name in names}
    folder.save(prediction | other, {name: np.asfortranarray(values) for name, values in truth.items()})
    same(folder.score(), expected, 1e-9 if kind != "<f2" else 2e-2)


def test_near_depths_in_double_precision_stay_apart(folder: Folder) -> None:
    prediction, truth, expected = case()
    folder.save(prediction, truth | {"depth_order": 5 + truth["depth_order"].astype(np.float64) * 1e-12})
    same(folder.score(), expected)


def test_what_is_missing_is_null(folder: Folder) -> None:
    prediction, truth, expected = case()
    kept = {name: prediction[name] for name in ("layer_masks", "has_background")}
    folder.save(kept, truth)
    found = folder.score()
    assert {name for name, value in found["paper"].items() if value is None} == {"IoU", "F1", "OCA", "OOA"}
    assert found["pooled"]["ARI-O"] == pytest.approx(expected["pooled"]["ARI-O"], abs=1e-9)
    assert found["per_scene"]["OOA"] == [None] * 4


def test_depth_order_of_the_truth_is_optional(folder: Folder) -> None:
    prediction, truth, expected = case()
    folder.save(prediction, {name: truth[name] for name in ("segment", "shapes")})
    found = folder.score()
    assert found["pooled"] == pytest.approx(expected["pooled"], abs=1e-9)
    assert found["paper"]["OOA"] is not None


@pytest.mark.parametrize("names", [("segment",), ("segment", "depth_order")])
def test_complete_shapes_of_the_truth_are_optional(folder: Folder, names: tuple[str, ...]) -> None:
    prediction, truth, expected = case()
    folder.save(prediction, {name: truth[name] for name in names})
    files = [str(folder.path / name) for name in ("pred.npz", "truth.npz")]
    words = [sys.executable, "-m", "viewslots", "score", *files, "--device", "cpu"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    found, lost = json.loads(done.stdout), {"IoU", "F1", "OOA"}
    assert found["paper"] == pytest.approx(expected["paper"] | dict.fromkeys(lost), abs=1e-9)
    lost |= {"ARI-O", "AMI-O"}
    assert found["pooled"] == pytest.approx(expected["pooled"] | dict.fromkeys(lost), abs=1e-9)
    assert done.stderr == "the truth has no shapes, so IoU, F1, OOA and pooled ARI-O, AMI-O are null\n"


def changed(name: str, change: Callable[[Any], Any]) -> Callable[[Arrays], Arrays]:
    return lambda files: files | {name: change(files[name])}


def at_first(value: float) -> Callable[[Any], Any]:
    """The array with a value in the middle of scene 1."""

    def change(values: Any) -> Any:
        values = values.copy()
        values[1].flat[3] = value
        return values

    return change


BAD_PREDICTIONS = {
    "no array layer_masks": lambda files: {name: v for name, v in files.items() if name != "layer_masks"},
    "no array has_background": lambda files: {name: v for name, v in files.items() if name != "has_background"},
    "has_background: .*bool": changed("has_background", lambda v: np.float32(v)),
    "has_background: .*single": changed("has_background", lambda v: np.array([True, False])),
    r"layer_masks: .*shape \(4, 5, 7, 7\).*S,M,L,H,W": changed("layer_masks", lambda v: v[:, 0]),
    "layer_masks: .*int64.*floats or uint8": changed("layer_masks", lambda v: v.astype(np.int64)),
    "layer_masks: .*complex": changed("layer_masks", lambda v: v.astype(np.complex64)),
    "layer_masks: nan in scene 1": changed("layer_masks", at_first(np.nan)),
    "layer_masks: inf in scene 1": changed("layer_masks", at_first(np.inf)),
    "layer_masks: 1.5 in scene 1.*0..1, or bytes": changed("layer_masks", at_first(1.5)),
    "layer_masks: -0.5 in scene 1.*0..1": changed("layer_masks", at_first(-0.5)),
    "layer_masks: .*no object layer": lambda files: {
        "layer_masks": files["layer_masks"][:, :, :1],
        "has_background": files["has_background"],
    },
    "layer_masks: L .* is 4097.*at most 4096": changed(
        "layer_masks", lambda v: np.zeros((1, 1, 4097, 1, 1), np.float16)
    ),
    "layer_masks: S .* is 0": changed("layer_masks", lambda v: v[:0]),
    r"complete_shapes: .*\[4,2,4,7,7\]": changed("complete_shapes", lambda v: v[:, :, :3]),
    "complete_shapes: nan in scene 1": changed("complete_shapes", at_first(np.nan)),
    r"presence: .*\[4,4\]": changed("presence", lambda v: v[:, :3]),
    "presence: 7.0 in scene 1": changed("presence", at_first(7.0)),
    "presence: .*pickles": changed("presence", lambda v: v.astype(object)),
    "depth_order: nan in scene 1": changed("depth_order", at_first(np.nan)),
    "depth_order: .*<U3|str": changed("depth_order", lambda v: np.full(v.shape, "abc")),
}
BAD_TRUTHS = {
    "no array segment": lambda files: {name: v for name, v in files.items() if name != "segment"},
    "segment: .*int32.*uint8": changed("segment", lambda v: v.astype(np.int32)),
    r"shapes: .*\(4, 2, 4, 7, 7\).*\[4,2,G,6,7\]": lambda files: files | {"segment": files["segment"][:, :, :6]},
    "segment: object 4 in scene 1.*4 objects": changed("segment", at_first(4)),
    "shapes: .*float32.*uint8": changed("shapes", lambda v: (v / 255).astype(np.float32)),
    r"shapes: .*\[4,2,G,7,7\]": changed("shapes", lambda v: v[..., 0]),
    r"depth_order: .*\[4,2,4\]": changed("depth_order", lambda v: v[:, :, 1:]),
    "depth_order: nan in scene 1": changed("depth_order", at_first(np.nan)),
}


@pytest.mark.parametrize("pattern", BAD_PREDICTIONS)
def test_bad_predictions_get_one_clear_line(folder: Folder, pattern: str) -> None:
    prediction, truth, _ = case()
    line = folder.refused(BAD_PREDICTIONS[pattern](prediction), truth)
    assert "pred.npz: " in line
    assert re.search(pattern, line), line


UNFIT = {
    r"layer_masks: .*\(4, 2, 5, 7, 7\).*\[3,2,L,7,7\], to fit the truth": lambda v: v[:3],
    r"layer_masks: .*\(4, 2, 5, 7, 7\).*\[4,1,L,7,7\], to fit the truth": lambda v: v[:, :1],
}


@pytest.mark.parametrize("pattern", UNFIT)
def test_what_does_not_fit_the_truth_is_blamed_on_the_prediction(folder: Folder, pattern: str) -> None:
    prediction, truth, _ = case()
    line = folder.refused(prediction, {name: UNFIT[pattern](values) for name, values in truth.items()})
    assert "pred.npz: " in line
    assert re.search(pattern, line), line


@pytest.mark.parametrize("pattern", BAD_TRUTHS)
def test_bad_truths_get_one_clear_line(folder: Folder, pattern: str) -> None:
    prediction, truth, _ = case()
    line = folder.refused(prediction, BAD_TRUTHS[pattern](truth))
    assert "truth.npz: " in line
    assert re.search(pattern, line), line


def test_files_that_are_none_get_one_clear_line(folder: Folder) -> None:
    prediction, truth, _ = case()
    assert "pred.npz: no such file" in folder.refused_files()
    folder.save(prediction, truth)
    pred = folder.path / "pred.npz"
    whole = pred.read_bytes()
    pred.write_bytes(b"no zip at all")
    assert "not a readable .npz" in folder.refused_files()
    pred.write_bytes(whole[: len(whole) // 2])
    assert "not a readable .npz" in folder.refused_files()
    pred.unlink()
    pred.mkdir()
    assert "pred.npz" in folder.refused_files()


def test_flipped_bits_are_noticed(folder: Folder) -> None:
    prediction, truth, _ = case()
    folder.save(prediction, truth)
    pred = folder.path / "pred.npz"
    data = bytearray(pred.read_bytes())
    place = data.find(prediction["layer_masks"].tobytes()[:64])
    data[place + 20] ^= 1
    pred.write_bytes(data)
    assert re.search("layer_masks: not a readable .npz file .*CRC", folder.refused_files())


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header.encode() + data


@pytest.mark.parametrize(
    ("member", "pattern"),
    [
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2, 5, 7, 7), }"), "another size"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, -2, 5, 7, 7), }", bytes(7840)), "another size"),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"cposix\nsystem\n"), "pickles"),
        (npy("{'descr': '<f4', 'shape': (4,)}"), "not a readable .npz"),
        (npy("(" * 5000), "not a readable .npz"),
        (npy("", version=b"\x02\x00"), "version"),
        (b"short", "not a readable .npz"),
    ],
)
def test_hostile_headers(folder: Folder, member: bytes, pattern: str) -> None:
    prediction, truth, _ = case()
    folder.save({"has_background": prediction["has_background"]}, truth)
    with zipfile.ZipFile(folder.path / "pred.npz", "a") as archive:
        archive.writestr("layer_masks.npy", member)
    line = folder.refused_files()
    assert re.search(pattern, line), line


def test_a_small_file_cannot_promise_terabytes(folder: Folder) -> None:
    """The size that the archive itself declares is forged along with the header."""
    prediction, truth, _ = case()
    folder.save({"has_background": prediction["has_background"]}, truth)
    header = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1000000, 2, 5, 700, 700), }")
    with zipfile.ZipFile(folder.path / "pred.npz", "a") as archive:
        archive.writestr("layer_masks.npy", header)
        archive.getinfo("layer_masks.npy").file_size = len(header) + 1000000 * 2 * 5 * 700 * 700
    assert "would unpack to 4.5 TiB" in folder.refused_files()


def test_a_stream_that_ends_early(folder: Folder) -> None:
    prediction, truth, _ = case()
    folder.save({"has_background": prediction["has_background"]}, truth)
    header = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (4, 2, 5, 7, 7), }")
    with zipfile.ZipFile(folder.path / "pred.npz", "a") as archive:
        archive.writestr("layer_masks.npy", header + bytes(100))
        archive.getinfo("layer_masks.npy").file_size = len(header) + 4 * 2 * 5 * 7 * 7
    assert "layer_masks" in folder.refused_files()


def test_a_scene_of_any_size_is_not_taken(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "NUMBERS_OF_A_SCENE", 1000)
    prediction, truth, _ = case()
    assert "a scene has" in folder.refused(prediction, truth)


def test_large_arrays_with_scattered_scenes_are_not_read(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "WHOLE_LIMIT", 1000)
    prediction, truth, _ = case()
    line = folder.refused(prediction | {"layer_masks": np.asfortranarray(prediction["layer_masks"])}, truth)
    assert "layer_masks: 7.7 KiB in Fortran's order; save it through np.ascontiguousarray" in line


def test_other_ways_to_compress_are_not_read(folder: Folder) -> None:
    prediction, truth, _ = case()
    folder.save(prediction, truth)
    with (
        zipfile.ZipFile(folder.path / "pred.npz") as source,
        zipfile.ZipFile(folder.path / "other.npz", "w", zipfile.ZIP_LZMA) as copy,
    ):
        for name in source.namelist():
            copy.writestr(name, source.read(name))
    (folder.path / "other.npz").replace(folder.path / "pred.npz")
    assert "np.savez_compressed" in folder.refused_files()


def test_out_makes_its_folder_and_is_no_folder_itself(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    prediction, truth, _ = case()
    folder.save(prediction, truth)
    out = folder.path / "new" / "out.json"
    assert folder.score("--out", str(out)) == json.loads(out.read_text())
    for place in (str(out.parent), "."):
        with pytest.raises(SystemExit) as stopped:
            folder.score("--out", place)
        assert stopped.value.code == 1
        assert re.fullmatch("viewslots: --out: .* is a folder; name a file in it.*\n", capsys.readouterr().err)


def test_what_was_perhaps_meant_otherwise_is_said(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt name, and masks of 0 and 1: no errors, but a line each on stderr."""
    prediction, truth, _ = case()
    binary = {name: (prediction[name] > 0.5).astype(np.uint8) for name in ("layer_masks", "complete_shapes")}
    folder.save(prediction | binary | {"complete_shape": np.zeros(3)}, truth | {"image": np.zeros(2)})
    files = [str(folder.path / name) for name in ("pred.npz", "truth.npz")]
    monkeypatch.setattr(sys, "argv", ["viewslots", "score", *files])
    cli.main()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(str(folder.path) + "/")[1].split(";")[0] for line in lines] == [
        "pred.npz: not used: 'complete_shape'",
        "truth.npz: not used: 'image'",
        "pred.npz: layer_masks: its bytes are 0 and 1 alone, but mean shares of 255",
        "pred.npz: complete_shapes: its bytes are 0 and 1 alone, but mean shares of 255",
    ]


def test_any_number_of_slots(folder: Folder) -> None:
    """Superpixels: more slots than a byte could name. A segment each, so every pixel its own and 49 but one counted."""
    masks = np.zeros((1, 1, 300, 7, 7), np.float32)
    masks[0, 0, np.arange(49) * 6, np.arange(49) // 7, np.arange(49) % 7] = 1
    segment = np.arange(49, dtype=np.uint8).reshape(1, 1, 7, 7)
    segment[0, 0, 0, 0] = 255
    shapes = (segment[:, :, None] == np.arange(49, dtype=np.uint8)[:, None, None]) * np.uint8(255)
    folder.save({"layer_masks": masks, "has_background": np.False_}, {"segment": segment, "shapes": shapes})
    found = folder.score()["paper"]
    assert (found["ARI-A"], found["AMI-O"], found["OCA"]) == (1, 1, 1)


def test_bench_metrics_tells_ratio_and_difference(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "SCENES", 3)
    out = tmp_path / "bench.json"
    monkeypatch.setattr(sys, "argv", ["viewslots", "bench", "metrics", "--out", str(out), "--seconds", "0.01"])
    cli.main()
    found = json.loads(out.read_text())
    assert found == json.loads(capsys.readouterr().out)
    assert found["largest_difference"] < 1e-9
    assert found["sklearn_over_ours"] == pytest.approx(found["sklearn_seconds"] / found["ours_seconds"])
    assert found["sklearn_over_ours_one_thread"] > 0
    assert None not in found["paper"].values()
    assert found["provenance"]["command"].startswith("viewslots bench metrics")
