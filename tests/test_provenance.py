"""A commit is told only for the checkout that holds the code."""

import shutil
import subprocess
import sys
from pathlib import Path

import viewslots
from viewslots import provenance

PACKAGE = Path(viewslots.__file__).parent


def test_a_copy_in_another_repository_does_not_take_its_commit(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "viewslots", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "mine").write_text("mine")
    for words in (
        ["init", "-q"],
        ["add", "mine"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "mine"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    code = "from viewslots.provenance import commit; print(commit())"
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "VIEWSLOTS_COMMIT": "told"}
    told = subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, env=environment, text=True)
    assert told == "told\n"


def test_the_story_names_command_and_machine() -> None:
    story = provenance.provenance()
    assert story["command"].split()[0] == "viewslots"
    assert story["viewslots"] == viewslots.__version__
    assert story["cores"] >= 1
