"""multi_object_datasets: TFRecord files written by protobuf itself, with checksums by TensorBoard's plain loop."""

import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fake_world import contents
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from importing import imported, noise, refused, scenes_of
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c as plain_crc32c
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from viewslots.data.import_data import import_data
from viewslots.data.sources import tfrecord
from viewslots.data.sources.tfrecord import crc32c


def example_class() -> type:
    """tf.Example, declared as in tensorflow/core/example/{example,feature}.proto."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, str]) -> None:
        added = file.message_type.add(name=name)
        for field, number, kind, rest in fields:
            label = kinds.LABEL_REPEATED if "repeated" in rest else kinds.LABEL_OPTIONAL
            extra = {"type_name": rest.split()[-1]} if kind == kinds.TYPE_MESSAGE else {}
            added.field.add(name=field, number=number, type=kind, label=label, **extra)

    message("BytesList", ("value", 1, kinds.TYPE_BYTES, "repeated"))
    message("FloatList", ("value", 1, kinds.TYPE_FLOAT, "repeated"))
    message("Int64List", ("value", 1, kinds.TYPE_INT64, "repeated"))
    message(
        "Feature",
        ("bytes_list", 1, kinds.TYPE_MESSAGE, ".t.BytesList"),
        ("float_list", 2, kinds.TYPE_MESSAGE, ".t.FloatList"),
        ("int64_list", 3, kinds.TYPE_MESSAGE, ".t.Int64List"),
    )
    message("Entry", ("key", 1, kinds.TYPE_STRING, ""), ("value", 2, kinds.TYPE_MESSAGE, ".t.Feature"))
    message("Features", ("feature", 1, kinds.TYPE_MESSAGE, "repeated .t.Entry"))  # what a map is on the wire
    message("Example", ("features", 1, kinds.TYPE_MESSAGE, ".t.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


Example = example_class()


def example(features: dict[str, np.ndarray], joined: bool = False) -> bytes:
    """Every byte an entry of its own, as DeepMind's files have it; or all of them in one."""
    made = Example()
    for name, values in features.items():
        entry = made.features.feature.add(key=name)
        if values.dtype == np.uint8:
            flat = values.tobytes()
            entry.value.bytes_list.value.extend([flat] if joined else [bytes([byte]) for byte in flat])
        else:
            entry.value.float_list.value.extend(values.ravel().tolist())
    return made.SerializeToString()


def promise(size: int) -> bytes:
    """The head of a record."""
    length = struct.pack("<Q", size)
    return length + struct.pack("<I", masked_crc32c(length))


def framed(data: bytes) -> bytes:
    return promise(len(data)) + data + struct.pack("<I", masked_crc32c(data))


def entities(count: int, height: int, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which entity each pixel belongs to, and the masks of that."""
    index = noise(height, width, seed=seed + 1000) % count
    return index, np.stack([(index == k) * np.uint8(255) for k in range(count)])[..., None]


def tetrominoes(number: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Picture, entities and features of a record; entity 0 is the background."""
    image = noise(35, 35, 3, seed=number)
    index, mask = entities(4, 35, 35, number)
    floats = {name: np.zeros(4, np.float32) for name in ("x", "y", "shape")}
    features = {"image": image, "mask": mask, **floats, "color": np.zeros((4, 3), np.float32)}
    return image, index, features | {"visibility": np.ones(4, np.float32)}


def dsprites(number: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Masks lie entity last; the fifth object is not there in every second record."""
    image = noise(64, 64, 3, seed=number)
    index, mask = entities(6 - number % 2, 64, 64, number)
    mask = np.concatenate([mask, np.zeros((number % 2, 64, 64, 1), np.uint8)])
    floats = {name: np.zeros(6, np.float32) for name in ("x", "y", "shape", "orientation", "scale")}
    visibility = np.array([1, 1, 1, 1, 1, 1 - number % 2], np.float32)
    return image, index, {"image": image, "mask": mask.transpose(1, 2, 0, 3), **floats, "visibility": visibility}


def room(number: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Sky, floor, two walls, three objects; nothing else is known."""
    image = noise(64, 64, 3, seed=number)
    index, mask = entities(7, 64, 64, number)
    return image, index, {"image": image, "mask": mask}


def records(path: Path, make: Callable[[int], tuple], count: int, first: int = 0, zipped: bool = True) -> Path:
    data = b"".join(framed(example(make(number)[2])) for number in range(first, first + count))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if zipped else data)
    return path


@pytest.mark.parametrize("size", [0, 1, 9, 255, 256, 257, 4095, 4096, 4097, 70_001])
def test_checksums_against_a_plain_loop(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert crc32c(data) == plain_crc32c(data)


def test_the_published_checksum() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA


@pytest.mark.parametrize(("make", "backgrounds", "count"), [(tetrominoes, 1, 4), (dsprites, 1, 6), (room, 4, 7)])
@pytest.mark.parametrize("zipped", [True, False])
def test_sets_are_told_apart_by_their_features(
    tmp_path: Path, make: Callable[[int], tuple], backgrounds: int, count: int, zipped: bool
) -> None:
    store = imported("multi-object", records(tmp_path / "set_train.tfrecords", make, 11, zipped=zipped))
    assert scenes_of(store) == {"train": 10, "valid": 1}
    order = {"train": [*range(9), 10], "valid": [9]}
    for split, numbers in order.items():
        arrays = store.split(split)
        assert arrays.size.slots == count - backgrounds
        for place, number in enumerate(numbers):
            image, index, features = make(number)
            np.testing.assert_array_equal(arrays["image"][place, 0], image)
            truth = np.where(index < backgrounds, 255, index.astype(int) - backgrounds)
            np.testing.assert_array_equal(arrays["segment"][place, 0], truth)
            present = features["visibility"].sum() if "visibility" in features else count
            assert arrays["num_objects"][place] == present - backgrounds


def test_clevr_and_grey_sprites(tmp_path: Path) -> None:
    """Sizes alone tell them; all bytes in one entry are read as well."""
    index, mask = entities(11, 240, 320, 1)
    image = noise(240, 320, 3)
    features = {"image": image, "mask": mask, "rotation": np.zeros(11, np.float32)}
    path = tmp_path / "clevr.tfrecords"
    path.write_bytes(gzip.compress(framed(example(features, joined=True)), 1))
    split = imported("multi-object", path, crop=0.5).split("valid")
    np.testing.assert_array_equal(split["image"][0, 0], image[60:180, 80:240])
    np.testing.assert_array_equal(split["segment"][0, 0], (index - np.uint8(1))[60:180, 80:240])
    grey, (_, mask) = noise(64, 64, 1), entities(4, 64, 64, 2)
    features = {"image": grey, "mask": mask.transpose(1, 2, 0, 3)}
    features |= {name: np.zeros(4, np.float32) for name in ("orientation", "scale")}
    (tmp_path / "binarized.tfrecords").write_bytes(framed(example(features)))
    split = imported("multi-object", tmp_path / "binarized.tfrecords", tmp_path / "grey").split("valid")
    np.testing.assert_array_equal(split["image"][0, 0], np.repeat(grey, 3, 2))


def test_what_records_tell_of_objects(tmp_path: Path) -> None:
    """Bytes, and shapes, are kinds without an order; other floats are numbers. The background has none."""
    image, (_, mask) = noise(64, 64, 3), entities(4, 64, 64, 2)
    features = {"image": image, "mask": mask.transpose(1, 2, 0, 3), "orientation": np.zeros(4, np.float32)}
    features |= {"scale": np.array([0, 0.5, 0.75, 1], np.float32), "shape": np.array([0, 2, 1, 3], np.float32)}
    features["color"] = np.arange(12, dtype=np.float32).reshape(4, 3) / 4
    (tmp_path / "sprites.tfrecords").write_bytes(framed(example(features)))
    store = imported("multi-object", tmp_path / "sprites.tfrecords")
    colours = [[0.75, 1.0, 1.25], [1.5, 1.75, 2.0], [2.25, 2.5, 2.75]]
    told = [
        {"color": color, "shape": shape, "size": size}
        for color, shape, size in zip(colours, ("2", "1", "3"), (0.5, 0.75, 1.0), strict=True)
    ]
    assert list(store.descriptions("valid")) == [{"name": "sprites/0", "objects": told}]
    features = {"image": image, "mask": mask, "rotation": np.zeros(4, np.float32), "size": np.zeros(7, np.float32)}
    features |= {"color": np.array([0, 3, 1, 8], np.uint8), "material": np.array([0, 1, 2, 2], np.uint8)}
    (tmp_path / "clevr.tfrecords").write_bytes(framed(example(features)))
    store = imported("multi-object", tmp_path / "clevr.tfrecords", tmp_path / "second")
    told = [{"color": color, "material": material} for color, material in (("3", "1"), ("1", "2"), ("8", "2"))]
    assert next(store.descriptions("valid"))["objects"] == told
    without = imported("multi-object", tmp_path / "clevr.tfrecords", tmp_path / "third", masks=False)
    assert list(without.descriptions("valid")) == [{"name": "clevr/0"}]


def test_several_files_are_splits_by_their_names(tmp_path: Path) -> None:
    for number, name in enumerate(("train", "test_empty_room", "test_six_objects")):
        records(tmp_path / "room" / f"objects_room_{name}.tfrecords", room, 3 - number, first=10 * number)
    store = imported("multi-object", tmp_path / "room")
    assert scenes_of(store) == {"train": 3, "test-empty-room": 2, "test-six-objects": 1}
    np.testing.assert_array_equal(store.split("test-six-objects")["image"][0, 0], noise(64, 64, 3, seed=20))
    for name in ("a", "b"):
        records(tmp_path / "parts" / f"{name}.tfrecords", tetrominoes, 6, first=6 * (name == "b"))
    store = imported("multi-object", tmp_path / "parts", tmp_path / "joined", splits=("test1=b/5",))
    assert scenes_of(store) == {"train": 10, "valid": 1, "test1": 1}
    np.testing.assert_array_equal(store.split("test1")["image"][0, 0], noise(35, 35, 3, seed=11))


def test_an_interrupted_import_skips_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = records(tmp_path / "set.tfrecords", tetrominoes, 11)
    whole = contents(imported("multi-object", path, tmp_path / "whole").path)

    def interrupt(done: int, total: int) -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_data("multi-object", path, tmp_path / "set", progress=interrupt)
    verified: list[int] = []
    monkeypatch.setattr(tfrecord, "crc32c", lambda data: verified.append(len(data)) or crc32c(data))
    assert contents(imported("multi-object", path, tmp_path / "set").path) == whole
    assert sum(length > 8 for length in verified) == 1 + 4  # the first tells the layout; four were left


def flipped(place: int) -> Callable[[bytes], bytes]:
    def damage(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[place] ^= 1
        return bytes(changed)

    return damage


RECORD = len(framed(example(tetrominoes(0)[2])))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flipped(2 * RECORD + 3000), r"set\.tfrecords: record 2: damaged \(its checksum differs\)"),
        (flipped(3 * RECORD - 1), r"record 2: damaged \(its checksum differs\)"),
        (flipped(2 * RECORD + 1), r"record 2: damaged \(the checksum of its length differs\)"),
        (flipped(1), r"record 0: not a TFRecord file"),
        (lambda data: data[: 2 * RECORD + 500], "record 2: cut off; get the file again"),
        (lambda data: data[: 2 * RECORD + 5], r"record 2: damaged \(the checksum of its length"),
        (lambda data: data + framed(b"hello"), r"record 3: not a tf\.Example"),
        (lambda data: data + framed(b""), "record 3: has no image"),
        (lambda data: data + framed(example(room(1)[2])), "record 3: a picture or mask of another size"),
        (lambda data: framed(example({"image": noise(10), "mask": noise(4)})), "are of no set that is known"),
        (lambda data: framed(example({"mask": noise(4)})), "record 0: has no image; not a set of multi_object"),
        (lambda data: framed(example(room(1)[2] | {"mask": noise(2, 64, 64)})), "2 masks, fewer than the 4"),
        (lambda data: promise(2**27) + data, r"record 0: 128\.0 MiB long, more than 64\.0 MiB"),
        (lambda data: framed(b"\x0a\xff\xff\xff\xff\x7f"), r"record 0: not a tf\.Example \(a field is longer"),
        (lambda data: framed(b"\xff" * 40), r"record 0: not a tf\.Example"),
        (lambda data: b"", "record 0"),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_damaged_records_get_one_line(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str, zipped: bool
) -> None:
    path = records(tmp_path / "set.tfrecords", tetrominoes, 3, zipped=False)
    data = damage(path.read_bytes())
    path.write_bytes(gzip.compress(data) if zipped else data)
    refused("multi-object", path, message)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9, 0.999])
def test_cut_gzip_streams(tmp_path: Path, keep: float) -> None:
    path = records(tmp_path / "set.tfrecords", tetrominoes, 3)
    path.write_bytes(path.read_bytes()[: 12 + int(keep * path.stat().st_size)][: path.stat().st_size - 1])
    refused("multi-object", path, r"set\.tfrecords: record \d: (the gzip stream is damaged|cut off)")


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """Zeros a thousand times the size of the file, promised as one record: its length is looked at first."""
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    start = stream.compress(promise(2**30))
    bomb = start + b"".join(stream.compress(bytes(2**24)) for _ in range(16)) + stream.flush()
    (tmp_path / "set.tfrecords").write_bytes(bomb)
    assert len(bomb) < 2**19
    refused("multi-object", tmp_path / "set.tfrecords", r"record 0: 1\.0 GiB long, more than 64\.0 MiB")
