"""Write down the tested set of packages: requirements.lock with hashes, for `make setup`, and sbom.json (CycloneDX).

Versions are those of the environment that runs this; hashes are those of all files that the package index has of them,
so that one lock serves every platform. Torch is left out: its build depends on the machine, and the Makefile pins it.
"""

import json
import subprocess
import sys
import urllib.parse
import urllib.request
from html.parser import HTMLParser
from importlib.metadata import distributions
from pathlib import Path

from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

LEFT_OUT = {"viewslots", "torch", "triton", "pip"}
HEAD = "# Written by tools/lock.py (`make lock`): the tested set. Torch is pinned in the Makefile.\n"


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def index() -> str:
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    found = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return (found or "https://pypi.org/simple").rstrip("/")


def version_of(file: str) -> Version | None:
    try:
        return parse_wheel_filename(file)[1] if file.endswith(".whl") else parse_sdist_filename(file)[1]
    except ValueError:
        return None


def hashes(name: str, version: str) -> list[str]:
    with urllib.request.urlopen(f"{index()}/{name}/", timeout=60) as page:
        links = Links()
        links.feed(page.read().decode())
    found = set()
    for link in links.found:
        path, _, fragment = link.partition("#")
        file = urllib.parse.unquote(path.rsplit("/", 1)[-1])
        if fragment.startswith("sha256=") and version_of(file) == Version(version):
            found.add(fragment.removeprefix("sha256="))
    if not found:
        sys.exit(f"the index has no file with a hash of {name} {version}")
    return sorted(found)


def installed() -> dict[str, str]:
    names: dict[str, str] = {}
    for dist in distributions():
        name = canonicalize_name(dist.metadata["Name"])
        if name not in LEFT_OUT and not name.startswith("nvidia-"):
            names.setdefault(name, dist.version)  # the first on the path is the one that is imported
    return dict(sorted(names.items()))


def lock_text(found: dict[str, tuple[str, list[str]]]) -> str:
    def entry(name: str, version: str, sums: list[str]) -> str:
        return f"{name}=={version} \\\n" + " \\\n".join(f"    --hash=sha256:{one}" for one in sums) + "\n"

    return HEAD + "".join(entry(name, *rest) for name, rest in found.items())


def read_lock(text: str) -> dict[str, tuple[str, list[str]]]:
    found: dict[str, tuple[str, list[str]]] = {}
    for word in text.replace("\\\n", " ").split("\n"):
        if word and not word.startswith("#"):
            pin, *sums = word.split()
            name, _, version = pin.partition("==")
            found[name] = version, [one.removeprefix("--hash=sha256:") for one in sums]
    return found


def bill(found: dict[str, tuple[str, list[str]]], torch: str) -> dict[str, object]:
    """CycloneDX 1.5. A library has many files; the hashes are in the lock."""
    versions = {name: version for name, (version, _) in found.items()} | {"torch": torch}
    parts = [
        {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
        for name, version in sorted(versions.items())
    ]
    about = {"component": {"type": "library", "name": "viewslots", "purl": "pkg:pypi/viewslots"}}
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": about, "components": parts}


def pinned_torch(makefile: Path) -> str:
    line = next(line for line in makefile.read_text().splitlines() if line.startswith("TORCH :="))
    return line.partition("==")[2].strip()


def main() -> None:
    root = Path(__file__).parent.parent
    found = {name: (version, hashes(name, version)) for name, version in installed().items()}
    (root / "requirements.lock").write_text(lock_text(found))
    written = bill(found, pinned_torch(root / "Makefile"))
    (root / "sbom.json").write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
