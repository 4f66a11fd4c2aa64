"""Exchange with HDF5 files in the published OCLOC layout, either way by the names of the files."""

from pathlib import Path

from viewslots.data.hdf5_export import export_hdf5
from viewslots.data.hdf5_import import import_hdf5
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.types import Progress

SUFFIXES = (".h5", ".hdf5")


def convert(source: str | Path, destination: str | Path, progress: Progress | None = None) -> Path:
    """HDF5 file -> data set folder, or data set folder -> HDF5 file."""
    origin, target = Path(source), Path(destination)
    if not origin.exists():
        raise UserError(f"{origin}: no such file or folder")
    from_file, to_file = (path.suffix.lower() in SUFFIXES for path in (origin, target))
    if from_file == to_file:
        raise UserError(
            f"{origin} -> {target}: one of the two must be a folder, the other a file ending in .h5 or .hdf5"
        )
    if from_file:
        return import_hdf5(origin, target, progress)
    return export_hdf5(Store.open(origin), target, progress)
