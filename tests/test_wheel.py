"""The built wheel, installed into an empty environment, works without a network."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

import viewslots
from viewslots.runs import find_run, shipped_models

ROOT = Path(__file__).parent.parent
UNWANTED = shutil.ignore_patterns("__pycache__", "*.egg-info", "_build")
NO_NETWORK = """
import socket

def refuse(*args, **kwargs):
    raise PermissionError("no network")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources, so that the checkout stays as it is."""
    source, out = tmp_path_factory.mktemp("source") / "viewslots", tmp_path_factory.mktemp("wheel")
    source.mkdir()
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(out), "."]
    subprocess.run([sys.executable, *build], cwd=source, check=True)
    return next(out.glob("*.whl"))


def test_the_wheel_holds_package_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "viewslots/py.typed" in names
    assert "viewslots/paper/tables.json" in names
    assert {"viewslots/report/template.html.j2", "viewslots/report/style.css"} <= set(names)
    assert "viewslots/shipped/compact/model.safetensors" in names
    assert {"viewslots/demo/template.html.j2", "viewslots/explorer/panels.html.j2"} <= set(names)
    assert {f"viewslots/explorer/{name}" for name in ("page.css", "pad.css", "pad.html", "pad.js")} <= set(names)
    assert not [name for name in names if name.startswith("tests")]


def test_the_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < 40 * 2**20
    assert viewslots.__version__ in wheel.name


def test_shipped_models_have_cards_that_the_hub_reads(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in shipped_models():
        assert f"viewslots/shipped/{name}/README.md" in names
        card = ModelCard.load(find_run(name) / "README.md")
        assert (card.data.license, card.data.library_name) == ("mit", "viewslots")
        assert f'viewslots.load("{name}")' in card.text
        assert "image-segmentation" in card.data.to_yaml()


def test_the_sdist_is_complete(tmp_path: Path) -> None:
    """Whatever is in the repository, so that it can be tested and documented from it; what git ignores is not."""
    for name in ("src", "tests", "docs", "tools", "examples", "benchmarks", ".ci"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=UNWANTED)
    for file in ROOT.iterdir():
        if file.is_file() and file.name not in (".git", ".gitignore"):
            shutil.copy(file, tmp_path / file.name)
    wanted = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    build = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", build, "dist"], cwd=tmp_path, check=True, capture_output=True)
    with tarfile.open(next((tmp_path / "dist").glob("*.tar.gz"))) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert wanted - found == set()


def test_an_installed_wheel_works_offline(wheel: Path, tmp_path: Path) -> None:
    """Dependencies are lent by path, the package itself is installed from the wheel; no address can be reached."""
    home = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = home / "bin" / "python"
    target = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    )
    site = Path(target.strip())
    install = ["-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, *install], check=True)
    # A plain line of a .pth adds a folder, but does not run the .pth files in it: the editable checkout stays out.
    # A line that imports is run at every start: sockets then reach nothing.
    (site / "no_network.py").write_text(NO_NETWORK)
    (site / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\nimport no_network\n")

    def run(*words: object) -> str:
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.check_output(list(map(str, words)), cwd=tmp_path, text=True, env=clean)

    connects = (
        "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9))\nexcept PermissionError:\n    print('cut')"
    )
    assert run(python, "-c", connects) == "cut\n"
    assert Path(run(python, "-c", "import viewslots; print(viewslots.__file__)")).is_relative_to(home)
    made = tmp_path / "abstract"
    sizes = ("--train-scenes", 2, "--valid-scenes", 1, "--test-scenes", 1)
    assert run(home / "bin" / "viewslots", "make-data", "abstract", "--out", made, *sizes) == f"{made}\n"
    assert '"ok": true' in run(home / "bin" / "viewslots", "check-data", made)
    demo = "from pathlib import Path; from viewslots.demo.demonstration import run_demo as run"
    run(python, "-c", f"{demo}; run(Path('demo'), 1, scenes=1, frames=2)")
    assert "One scene nobody has seen before" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
