"""The built wheel, installed into an empty environment, works without a network."""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


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
    assert not [name for name in names if name.startswith("tests")]


def test_an_installed_wheel_works_offline(wheel: Path, tmp_path: Path) -> None:
    """Dependencies are lent by path, the package itself comes from the wheel; no address can be reached."""
    home = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = home / "bin" / "python"
    site = Path(
        subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        ).strip()
    )
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # A plain line of a .pth adds a folder, but does not run the .pth files in it: the editable checkout stays out.
    (site / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    no_network = "import socket; socket.socket.connect = None\n"
    (site / "sitecustomize.py").write_text(no_network)

    def run(*words: object) -> str:
        return subprocess.check_output([python, *map(str, words)], cwd=tmp_path, text=True)

    where = run("-c", "import viewslots; print(viewslots.__file__)").strip()
    assert Path(where).is_relative_to(home)
    made = tmp_path / "abstract"
    sizes = ("--train-scenes", 2, "--valid-scenes", 1, "--test-scenes", 1)
    assert run("-m", "viewslots", "make-data", "abstract", "--out", made, *sizes).strip() == str(made)
    assert '"ok": true' in run("-m", "viewslots", "check-data", made)
