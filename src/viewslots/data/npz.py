"""Writing a handful of arrays as one .npz, whole or not at all."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewslots.data.disk import plain_errors
from viewslots.errors import UserError


def require_npz(path: Path) -> None:
    """Say ahead of the work that its result could not be written."""
    if path.suffix != ".npz":
        raise UserError(f"{path}: arrays are written as .npz; give a name that ends so")
    if not path.parent.is_dir():
        raise UserError(f"{path.parent}: no such folder; create it first")


def save_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Path:
    """Write to a neighbouring temporary file and rename, so that an interruption leaves no half file."""
    require_npz(path)
    with plain_errors("writing", path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez_compressed(file, **dict(arrays))  # type: ignore[arg-type]
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    return path
