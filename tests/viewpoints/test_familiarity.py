"""Familiarity: errors of pictures, and a warning for those that are unlike what a model was trained on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from viewslots.data.presets import data_preset
from viewslots.errors import UserError
from viewslots.files import read_json, sha256
from viewslots.runs import find_run, shipped_models
from viewslots.viewpoints.familiarity import Typical, picture_errors, read_typical, unfamiliarity
from viewslots.viewpoints.scene import InferredScene, Reader


def test_errors_of_pictures(scene: InferredScene) -> None:
    assert scene.images is not None
    expected = [np.mean((seen.numpy() - scene.render(view).image.numpy()) ** 2)
                for seen, view in zip(scene.images, scene.views, strict=True)]  # fmt: skip
    np.testing.assert_allclose(picture_errors(scene).numpy(), expected, rtol=1e-4)
    assert len(picture_errors(scene.reader.prior(0))) == 0


def test_pictures_beyond_the_usual_are_named(scene: InferredScene) -> None:
    errors = sorted(picture_errors(scene).tolist())

    def warning(limit: float) -> str | None:
        typical = Typical("small things", {"0.5": errors[-1] / 4, "0.995": limit})
        return unfamiliarity(replace(scene, reader=replace(scene.reader, typical=typical)))

    assert unfamiliarity(scene) is None  # nothing was measured for this model
    assert warning(errors[2] * 1.01) is None
    one, two = warning((errors[1] + errors[2]) / 2), warning((errors[0] + errors[1]) / 2)
    assert one is not None
    assert two is not None
    worst = int(picture_errors(scene).argmax()) + 1
    assert f"picture {worst} looks unlike what this model was trained on (small things)" in one
    assert "4.0 times the usual error" in one
    assert "pictures" in two
    assert "up to 4.0 times" in two


def test_measured_figures_are_read_or_refused(tmp_path: Path) -> None:
    assert read_typical(tmp_path) is None
    file = tmp_path / "typical.json"
    file.write_text('{"data": "x", "quantiles": {"0.5": 0.001, "0.995": 0.004}}')
    assert read_typical(tmp_path) == Typical("x", {"0.5": 0.001, "0.995": 0.004})
    for bad in ("{}", '{"data": "x", "quantiles": {"0.5": 1}}', '{"data": "x", "quantiles": 3}', "[]", "{"):
        file.write_text(bad)
        with pytest.raises(UserError, match=r"typical\.json"):
            read_typical(tmp_path)
    file.write_text('{"data": "x", "quantiles": {"0.5": 0.4, "0.995": 0.1}}')
    with pytest.raises(UserError, match="grow"):
        read_typical(tmp_path)


def test_the_shipped_model_knows_its_kind_of_pictures(compact: Reader, clevr: np.ndarray) -> None:
    assert compact.typical is not None
    for pictures in clevr:
        assert unfamiliarity(compact.decompose(pictures)) is None
    strange = compact.decompose(np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), dtype=np.uint8))
    line = unfamiliarity(strange)
    assert line is not None
    assert line.startswith("pictures 1, 2 look unlike")


@pytest.mark.parametrize("name", ["dsprites", "abstract"])
def test_other_worlds_are_noticed(compact: Reader, name: str) -> None:
    """Pictures of our other data sets: warned of, nearly always."""
    world = data_preset(name).world(None)
    pictures = world.render([world.sample(5, "test1", index) for index in range(20)], world.slots("test1")).image
    noticed = [unfamiliarity(compact.decompose(picture)) is not None for picture in pictures]
    assert np.mean(noticed) >= 0.9


@pytest.mark.parametrize("name", shipped_models())
def test_shipped_figures_belong_to_shipped_weights(name: str) -> None:
    """Whoever ships other weights has to measure again: tools/measure_typical.py."""
    folder = find_run(name)
    assert read_json(folder / "typical.json")["weights_sha256"] == sha256(folder / "model.safetensors")
