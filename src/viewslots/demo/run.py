"""The demonstration: new scenes, their pictures, their truth, on one sheet."""

from pathlib import Path

from viewslots.data.making import make_dataset
from viewslots.data.store import Store
from viewslots.data_presets import data_preset
from viewslots.errors import UserError
from viewslots.figures.sheets import contact_sheet
from viewslots.types import Pictures, Progress

PRESET = "clevr-m1"
SCENES, VIEWS = 3, 4


def run_demo(out: Path, seed: int, progress: Progress | None = None) -> tuple[Path, Path]:
    """A data set of a few scenes in a new folder of `out`, and its contact sheet."""
    data = out / f"{PRESET}-seed{seed}"
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: cannot be made ({error.strerror}); choose another --out") from error
    counts = {"test1": SCENES - 1, "test2": 1}
    make_dataset(data_preset(PRESET).world(None), counts, data, preset=PRESET, seed=seed, progress=progress)
    store = Store.open(data)
    pictures = [stored_pictures(store, split).first_views(VIEWS) for split in counts]
    slots = max(part.shapes.shape[2] for part in pictures)
    sheet = data.with_suffix(".png")
    contact_sheet(Pictures.concatenate([part.padded(slots) for part in pictures]), zoom=2).save(sheet)
    return sheet, data


def stored_pictures(store: Store, split: str) -> Pictures:
    arrays = store.split(split)
    return Pictures(**{key: arrays[key] for key in Pictures.keys()})  # noqa: SIM118
