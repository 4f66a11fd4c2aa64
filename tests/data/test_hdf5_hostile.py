"""HDF5 files that attack, lie or are broken: one clear line, nothing followed, nothing left behind."""

import contextlib
import random
import resource
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from fake_world import COUNTS, FakeWorld

from forked import in_child
from viewslots.data.exchange.hdf5 import convert
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.data.store import Store
from viewslots.errors import UserError


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("good")
    make_dataset(DatasetRecipe(FakeWorld(), COUNTS, preset="fake", seed=1), folder / "set")
    return convert(folder / "set", folder / "set.h5").read_bytes()


@pytest.fixture
def file(good: bytes, tmp_path: Path) -> Path:
    (tmp_path / "set.h5").write_bytes(good)
    return tmp_path / "set.h5"


def refused(path: Path, message: str) -> None:
    out = path.parent / "out"
    with pytest.raises(UserError, match=message) as caught:
        convert(path, out)
    assert "\n" not in str(caught.value)
    assert not out.exists(), "something was left behind"


def test_the_file_as_it_is_converts(file: Path) -> None:
    """What the attacks below change is accepted before they do."""
    split = Store.open(convert(file, file.parent / "out")).split("train")
    with h5py.File(file) as opened:
        np.testing.assert_array_equal(split["image"], opened["train/image"])
        np.testing.assert_array_equal(split["shapes"], opened["train/masks"][:, :, :-1, :, :, 0])


def external_group(file: h5py.File, folder: Path) -> None:
    del file["train"]
    file["train"] = h5py.ExternalLink(str(folder / "other.h5"), "/train")


def external_dataset(file: h5py.File, folder: Path) -> None:
    del file["train/image"]
    file["train/image"] = h5py.ExternalLink(str(folder / "other.h5"), "/train/image")


def external_extra(file: h5py.File, folder: Path) -> None:
    file["train/viewpoint"] = h5py.ExternalLink(str(folder / "other.h5"), "/train/image")


def soft_link(file: h5py.File, folder: Path) -> None:
    del file["train/image"]
    file["train/image"] = h5py.SoftLink("/valid/image")


def dangling_link(file: h5py.File, folder: Path) -> None:
    file["test"] = h5py.SoftLink("/nowhere")


@pytest.mark.parametrize("attack", [external_group, external_dataset, external_extra, soft_link, dangling_link])
def test_links_are_not_followed(file: Path, good: bytes, attack: Callable[[h5py.File, Path], None]) -> None:
    (file.parent / "other.h5").write_bytes(good)
    with h5py.File(file, "a") as opened:
        attack(opened, file.parent)
    refused(file, "is a link to another place")


def test_data_in_other_files_are_not_read(file: Path) -> None:
    secret = file.parent / "secret"
    secret.write_bytes(b"s" * 10**5)
    with h5py.File(file, "a") as opened:
        shape = opened["train/image"].shape
        del opened["train/image"]
        opened.create_dataset("train/image", shape, "u1", external=[(str(secret), 0, 10**5)])
    refused(file, r"train/image: its data lie in other files")


def test_virtual_datasets_are_not_read(file: Path, good: bytes) -> None:
    (file.parent / "other.h5").write_bytes(good)
    with h5py.File(file, "a") as opened:
        shape = opened["train/image"].shape
        del opened["train/image"]
        layout = h5py.VirtualLayout(shape, "u1")
        layout[:] = h5py.VirtualSource(str(file.parent / "other.h5"), "train/image", shape)
        opened.create_virtual_dataset("train/image", layout)
    refused(file, r"train/image: its data lie in other files")


def replaced(name: str, **options: object) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        shape = file[name].shape
        del file[name]
        file.create_dataset(name, **({"shape": shape, "dtype": "u1"} | options))

    return change


def removed(name: str) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]

    return change


def written(name: str, where: tuple[object, ...], value: object) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        file[name][where] = value

    return change


def twice_deflated(file: h5py.File) -> None:
    space = h5py.h5s.create_simple(file["train/image"].shape)
    del file["train/image"]
    pipeline = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    pipeline.set_chunk((1, 3, 6, 8, 3))
    pipeline.set_deflate(9)
    pipeline.set_deflate(9)
    h5py.h5d.create(file["train"].id, b"image", h5py.h5t.STD_U8LE, space, pipeline)


def two_groups_one_split(file: h5py.File) -> None:
    file.copy("valid", "val")


def other_size(file: h5py.File) -> None:
    for name, dataset in list(file["valid"].items()):
        rows = dataset[:, :, ..., :4] if name in ("segment", "overlap", "shadows") else dataset[()]
        rows = rows[:, :, :, :4] if name == "image" else rows[:, :, :, :, :4] if name == "masks" else rows
        del file[f"valid/{name}"]
        file[f"valid/{name}"] = rows


def many_names(file: h5py.File) -> None:
    for number in range(300):
        file.create_group(f"g{number}")


VLEN = h5py.vlen_dtype(np.uint8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced("train/image", dtype=VLEN), r"train/image: its type is 'object'"),
        (replaced("train/num_objects", dtype=h5py.string_dtype()), r"num_objects: its type is 'object'"),
        (replaced("train/image", dtype=h5py.ref_dtype), r"train/image: its type is 'object'"),
        (replaced("train/image", dtype=[("a", "u1"), ("b", "f4")]), r"train/image: its type is"),
        (replaced("train/image", dtype="f4"), r"train/image: float32 .* but must be uint8"),
        (replaced("train/image", dtype="i1"), r"train/image: int8 .* but must be uint8"),
        (replaced("train/image", shape=(5, 3, 6, 8, 4)), r"must be uint8 \(5, 3, 6, 8, 3\)"),
        (replaced("train/image", shape=(5, 3, 6)), r"image \(5, 3, 6\) must be"),
        (replaced("train/image", shape=()), r"image \(\) must be"),
        (replaced("train/masks", shape=(5, 3, 4, 6, 8)), r"train: masks \(5, 3, 4, 6, 8\) must be"),
        (replaced("train/masks", shape=(5, 3, 1, 6, 8, 1)), r"slots is 0, but must be in 1\.\.255"),
        (replaced("train/masks", shape=(5, 3, 300, 6, 8, 1)), r"slots is 299, but must be in 1\.\.255"),
        (replaced("train/segment", shape=(5, 3, 6, 9)), r"train/segment: uint8 .* but must be uint8 \(5, 3, 6, 8\)"),
        (replaced("train/image", shape=(5, 3, 10**5, 8, 3), chunks=(1, 1, 64, 8, 3)), "height is 100000"),
        (replaced("train/image", shape=(10**12, 3, 6, 8, 3), chunks=(1, 3, 6, 8, 3)), "chunks are too many"),
        (
            replaced("train/image", shape=(10**8, 4, 6, 8, 3), chunks=(2 * 10**6, 1, 6, 8, 3)),
            "chunks of .* are too large",
        ),
        (replaced("train/image", compression="lzf"), "only gzip compression"),
        (replaced("train/image", fletcher32=True), "only gzip compression"),
        (twice_deflated, "only gzip compression"),
        (removed("train/image"), r"train: no image in this group"),
        (two_groups_one_split, "more than one group for the split valid"),
        (other_size, r"valid: scene 0: 6x4 pixels, but .*train: scene 0 has 6x8"),
        (many_names, "303 entries, more than a file of this layout has"),
        (written("train/segment", (2, 1, 0, 0), 4), r"train: scene 2: segment has values above 3"),
        (written("train/segment", (2, 1, 0, 0), 255), r"train: scene 2: segment has values above 3"),
        (written("train/masks", (4, 1, 3, 2, 2), 254), r"train: scene 4: the last slot must be the background"),
        (written("train/overlap", (3, 1), 9), r"train: scene 3: overlap is not the number of alphas"),
        (written("train/num_objects", (1,), 4), r"train: scene 1: num_objects must be in 0\.\.3"),
        (written("train/order", (1, 2, 0), np.nan), r"train: scene 1, view 2, key depth_order: not a finite number"),
        (written("train/camera", (1, 2, 0), np.inf), r"train: scene 1, view 2, key camera: not finite"),
        (written("train/num_objects", (0,), 0), r"train: scene 0, view 0, key segment"),
    ],
)
def test_lies_are_named(file: Path, change: Callable[[h5py.File], None], message: str) -> None:
    with h5py.File(file, "a") as opened:
        change(opened)
    refused(file, message)


def all_of_a_group(file: h5py.File, scenes: int) -> None:
    """A group that promises a great many scenes and stores none."""
    for name, dataset in list(file["train"].items()):
        shape, dtype = dataset.shape, dataset.dtype
        del file[f"train/{name}"]
        chunk = (min(scenes, 10**6), *(1 for _ in shape[1:])) if name != "num_objects" else (10**6,)
        file.create_dataset(f"train/{name}", (scenes, *shape[1:]), dtype, chunks=chunk, compression="gzip")


def test_an_empty_promise_of_gigabytes_is_refused_at_once(file: Path) -> None:
    with h5py.File(file, "a") as opened:
        all_of_a_group(opened, 10**7)
    assert file.stat().st_size < 10**6
    refused(file, r"would unpack to \d+\.\d GiB, more than its size justifies \(4\.0 GiB\)")
    with h5py.File(file, "a") as opened:  # then labels would be looked through for the background
        del opened["train/masks"], opened["train"].attrs["max_objects"], opened["train"].attrs["background_index"]
    refused(file, r"would unpack to \d+\.\d GiB, more than its size justifies \(4\.0 GiB\)")


@pytest.mark.parametrize("claimed", [2**18, 2**25])
def test_a_stream_that_unpacks_beyond_its_chunk_is_refused_without_unpacking_it(file: Path, claimed: int) -> None:
    """Hundreds of times what the chunk holds: by the length of its stream, or by what comes out of it."""
    bomb = zlib.compress(bytes(claimed), 9)
    with h5py.File(file, "a") as opened:
        opened["train/image"].id.write_direct_chunk((2, 0, 0, 0, 0), bomb)
    refused(
        file, "unpacks to another size" if claimed == 2**18 else r"a chunk is stored in \d+ bytes, but holds only 432"
    )


def test_memory_stays_bounded_under_a_bomb(file: Path) -> None:
    """A chunk of 576 KiB whose stream unpacks to 512 MiB, under a limit of 256 MiB more than we have now."""
    with h5py.File(file, "a") as opened:
        del opened["valid"], opened["general"]
        for name in list(opened["train"]):
            shape, dtype = opened[f"train/{name}"].shape, opened[f"train/{name}"].dtype
            shape = (1, *(256 if extent in (6, 8) else extent for extent in shape[1:]))
            del opened[f"train/{name}"]
            opened.create_dataset(f"train/{name}", shape, dtype, chunks=shape, compression="gzip")
        bomb = zlib.compressobj(9)
        stream = b"".join(bomb.compress(bytes(2**24)) for _ in range(32)) + bomb.flush()
        assert 2**18 < len(stream) < 2**20
        opened["train/image"].id.write_direct_chunk((0, 0, 0, 0, 0), stream)

    def work() -> None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
        refused(file, "unpacks to another size than the 589824 bytes it declares")

    assert in_child(work) == 0


@pytest.mark.parametrize("stream", [b"not deflate", zlib.compress(bytes(100)), zlib.compress(bytes(432))[:-2]])
def test_broken_streams_are_refused(file: Path, stream: bytes) -> None:
    with h5py.File(file, "a") as opened:
        opened["train/image"].id.write_direct_chunk((2, 0, 0, 0, 0), stream)
    refused(file, "unpacks to another size|not a readable HDF5 file")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_truncated_files(file: Path, good: bytes, share: float) -> None:
    file.write_bytes(good[: int(len(good) * share)])
    refused(file, r"set\.h5: not a readable HDF5 file")


@pytest.mark.parametrize(
    "data", [b"PK\x03\x04" + bytes(100), b"hello", b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a\n" * 50]
)
def test_files_that_are_not_hdf5(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    refused(file, r"set\.h5: not a readable HDF5 file")


def test_a_folder_or_a_text_named_h5(tmp_path: Path) -> None:
    (tmp_path / "set.h5").mkdir()
    refused(tmp_path / "set.h5", "not a regular file")


def test_no_groups_at_all(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file.create_group("nothing")
    refused(tmp_path / "set.h5", "no group with scenes")


def test_flipped_bytes_never_bring_it_down(file: Path, good: bytes) -> None:
    """In a process of its own: it may end well or refuse, but must not crash, hang or raise anything else."""

    def work() -> None:
        chance = random.Random(11)
        for number in range(100):
            data = bytearray(good)
            for _ in range(chance.choice((1, 4, 30))):
                data[chance.randrange(len(data))] = chance.randrange(256)
            file.write_bytes(data)
            with contextlib.suppress(UserError):
                convert(file, file.parent / f"out{number}")

    assert in_child(work) == 0
