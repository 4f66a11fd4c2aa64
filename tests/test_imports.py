"""Imports point one way: a stage never knows the stages after it."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "viewslots"

FREE = {"viewslots", "errors", "types", "files", "kernels", "pulse", "ranks", "run_format"}
"""What everything may import."""
MAY_IMPORT = {
    "errors": set(),
    "types": set(),
    "files": set(),
    "run_format": set(),
    "kernels": set(),
    "provenance": set(),
    "pulse": set(),
    "ranks": set(),
    "scenes": {"scenes"},
    "data": {"data", "scenes"},
    "methods": {"methods"},
    "figures": {"figures", "metrics", "viewpoints"},
    "experiments": {"methods"},
    "metrics": {"data", "metrics"},
    "protocol": {"data", "experiments", "methods", "metrics", "protocol", "run_record", "runs"},
    "protocols": {"metrics", "protocol"},
    "report": {"methods", "metrics", "protocol", "report"},
    "training": {
        "data",
        "experiments",
        "figures",
        "methods",
        "metrics",
        "provenance",
        "run_record",
        "runs",
        "scenes",
        "training",
    },
    "runs": {"methods"},
    "run_record": {"experiments", "methods", "runs"},
    "reproduce": {"data", "experiments", "methods", "provenance", "reproduce", "terminal", "training"},
    "viewpoints": {"data", "methods", "runs", "viewpoints"},
    "explorer": {"data", "explorer", "figures", "metrics", "scenes", "viewpoints"},
    "bench": {
        "bench",
        "data",
        "experiments",
        "methods",
        "metrics",
        "provenance",
        "runs",
        "scenes",
        "terminal",
        "training",
    },
    "demo": {"data", "demo", "figures", "methods", "metrics", "protocol", "report", "run_record", "runs", "viewpoints"},
    "terminal": set(),
    "commands": {
        "bench",
        "commands",
        "data",
        "demo",
        "experiments",
        "explorer",
        "figures",
        "methods",
        "metrics",
        "protocol",
        "protocols",
        "provenance",
        "report",
        "reproduce",
        "run_record",
        "runs",
        "scenes",
        "terminal",
        "training",
        "viewpoints",
    },
    "cli": {"commands", "terminal"},
    "__main__": {"cli"},
    "__init__": {"data", "methods", "viewpoints"},
}
"""What each stage does import; what it does not need it may not."""


def stage_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_names(path: Path) -> list[str]:
    """Modules that a file imports, also inside functions."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += [
                f"{node.module}.{alias.name}" if node.module == "viewslots" else str(node.module)
                for alias in node.names
            ]
    return names


def imported_stages(path: Path) -> set[str]:
    """First part below `viewslots` of every import in a file."""
    ours = [name.split(".") for name in imported_names(path) if name.split(".")[0] == "viewslots"]
    return {parts[1] if len(parts) > 1 else "viewslots" for parts in ours}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    allowed = MAY_IMPORT[stage_of(path)] | FREE | {"__version__"}
    assert imported_stages(path) <= allowed


def test_nothing_is_allowed_that_nobody_needs() -> None:
    for stage, allowed in MAY_IMPORT.items():
        files = [path for path in SOURCE.rglob("*.py") if stage_of(path) == stage]
        assert allowed == set().union(*map(imported_stages, files)) - FREE - {"__version__"}, stage


def test_the_blender_program_takes_of_us_only_what_a_description_means() -> None:
    """Its environment has no torch: tests/scenes/test_blender.py reads descriptions without it."""
    meaning = {"viewslots.errors"} | {
        f"viewslots.scenes.tabletop{module}" for module in ("", ".bodies", ".table_scene", ".textures")
    }
    for path in (SOURCE / "scenes" / "blender").glob("*.py"):
        ours = {name for name in imported_names(path) if name.split(".")[0] in ("viewslots", "torch")}
        assert ours <= meaning


def test_triton_is_imported_by_kernels_alone() -> None:
    users = [path.name for path in SOURCE.rglob("*.py") if "import triton" in path.read_text()]
    assert users
    assert all(name.endswith("_cuda.py") for name in users)
