"""The docs site: `make docs` builds it with warnings as errors."""

import re
from pathlib import Path

import viewslots

ROOT = Path(__file__).parent.parent

project = "viewslots"
author = "The viewslots authors"
copyright = author
version = release = viewslots.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.doctest"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"viewslots {release}"
html_static_path: list[str] = []
html_theme_options = {"navigation_with_keys": True}
pygments_style = "default"

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": False}
# Shapes are types of jaxtyping; the words of the docstrings are enough for a reader.
nitpicky = False

PAGES = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Files of the repository's root that are pages here."""
LINK = re.compile(r"\[([^\]]*)\]\(([^):#]+)(#[^)]*)?\)")


def inner_links(app: object, page: str, source: list[str]) -> None:
    """Links that leave docs/ lead to the page that shows the file; those to other files and to folders become names."""
    docs = ROOT / "docs"

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found.groups()
        path = ((docs / page).parent / target).resolve()
        if path.is_relative_to(docs) and not path.is_dir():
            return found[0]
        if path.name in PAGES and path.parent == ROOT:
            return f"[{words}]({'../' * page.count('/')}{PAGES[path.name]}{anchor or ''})"
        return f"{words} (`{target.removeprefix('../')}`)"

    source[0] = LINK.sub(link, source[0])


def linked_from_root(app: object, relative: object, parent: str, source: list[str]) -> None:
    """The same for files of the root, which pages include: their links begin with docs/."""
    text = re.sub(r"\]\(docs/", "](", source[0])
    for file, page in PAGES.items():
        text = text.replace(f"]({file}", f"]({page}")
    source[0] = re.sub(r"\[([^\]]*)\]\(((?:src|tests|examples|benchmarks|LICENSE|CITATION)[^)]*)\)", r"\1 (`\2`)", text)


def setup(app: object) -> None:
    app.connect("source-read", inner_links)  # type: ignore[attr-defined]
    app.connect("include-read", linked_from_root)  # type: ignore[attr-defined]
