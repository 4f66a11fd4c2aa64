"""What the documents show runs: the Python of README.md and docs/, doctests of the package, the docs site."""

import doctest
import importlib
import json
import pkgutil
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import viewslots
from viewslots.commands.data import render
from viewslots.scenes.clevr.family import TinyClevrWorld

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "docs/tutorial.md", ROOT / "docs/api.md"]
CODE = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the examples name them."""
    monkeypatch.chdir(tmp_path)
    world = TinyClevrWorld(views=3)
    image = world.render([world.sample(0, "test1", 0)], 3).image[0]
    for name, pixels in zip("abc", image, strict=True):
        Image.fromarray(pixels).resize((96, 96)).save(f"{name}.jpg")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_of_the_documents(page: Path, pictures: None) -> None:
    found = CODE.findall(page.read_text())
    assert found
    for code in found:
        exec(compile(code, str(page), "exec"), {})


def modules_with_doctests() -> list[str]:
    names = [module.name for module in pkgutil.walk_packages(viewslots.__path__, "viewslots.")]
    files = {name: ROOT / "src" / (name.replace(".", "/") + ".py") for name in names}
    return [name for name, file in files.items() if file.is_file() and re.search(r"^\s*>>> ", file.read_text(), re.M)]


def test_doctests_run() -> None:
    names = modules_with_doctests()
    assert names
    for name in names:
        tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
        assert tried.attempted
        assert tried.failed == 0, name


SHIPPED = sorted((ROOT / "src/viewslots/shipped").glob("*/run.json"))


@pytest.mark.parametrize("run", SHIPPED, ids=lambda run: run.parent.name)
def test_cards_of_shipped_models_have_the_scores_of_their_runs(run: Path) -> None:
    scores = json.loads(run.read_text())["facts"]["scores"]
    rows = re.findall(r"^\| (\S+) \| (\d\.\d{3}) \|$", (run.parent / "README.md").read_text(), re.M)
    assert dict(rows) == {name: f"{score:.3f}" for name, score in scores.items()}


def test_the_page_of_all_evidence_is_of_these_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table and row of the paper; links lead to results; two cells by hand."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    evidence = importlib.import_module("evidence")
    text = evidence.PAGE.read_text(encoding="utf-8")
    assert text == evidence.page(), "python tools/evidence.py"
    tables = json.loads((ROOT / "src/viewslots/paper/tables.json").read_text())
    assert text.count("\n## ") == len(tables)
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    published = [n for n, row in enumerate(rows) if row[1].startswith("*")]
    assert len(published) == sum(len(table["rows"]) for table in tables.values())
    linked = re.findall(r"\]\((\S+\.json)\)", text)
    assert sum(row[1].startswith("[") for row in rows) == len(linked)
    assert all((evidence.RESULTS / file).is_file() for file in linked)
    assert [evidence.three_digits({"mean": mean}) for mean in (-0.042, 0.97, 1.0, None)] == [
        "-.042",
        ".970",
        "1.000",
        "–",
    ]
    space = json.loads((ROOT / "docs/results/single-view/results/space-clevr-test1.json").read_text())
    row = next(row for row in rows if "space-clevr-test1.json" in row[1])
    assert row[2] == f"{space['training']['scored_step']:,} (3.3)"  # 6,600 of 200,000
    assert float(row[4]) == pytest.approx(space["pooled"]["ARI-A"]["mean"], abs=5e-4)


def test_every_page_is_on_the_site() -> None:
    """Sphinx says so too, in `make docs`; this needs no Sphinx."""
    listed = (ROOT / "docs/index.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.stem == "index" or re.search(rf"^{page.stem}$", listed, re.M), page.name


def test_lock_and_bill_of_materials_agree() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        lock = importlib.import_module("lock")
    finally:
        sys.path.pop(0)
    found = lock.read_lock((ROOT / "requirements.lock").read_text())
    assert lock.lock_text(found) == (ROOT / "requirements.lock").read_text()
    assert all(sums and all(re.fullmatch("[0-9a-f]{64}", one) for one in sums) for _, sums in found.values())
    bill = json.loads((ROOT / "sbom.json").read_text())
    assert bill == lock.bill(found, lock.pinned_torch(ROOT / "Makefile"))
    assert {"pillow", "numpy", "h5py", "sphinx"} <= set(found)


def test_render_writes_a_picture_too(tmp_path: Path) -> None:
    scene = tmp_path / "scene.json"
    scene.write_text(json.dumps(TinyClevrWorld(views=2).sample(0, "test1", 0).to_dict()))
    for name in ("all.png", "all.npz"):
        render(scene, out=tmp_path / name, device="cpu")
    with Image.open(tmp_path / "all.png") as shown, np.load(tmp_path / "all.npz") as arrays:
        assert np.array_equal(np.asarray(shown), np.concatenate(list(arrays["image"]), axis=1))
