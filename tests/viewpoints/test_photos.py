"""A user's own pictures: every kind that is taken, and one line for every kind that is not."""

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from viewslots.errors import UserError
from viewslots.viewpoints import photos
from viewslots.viewpoints.photos import area_mean, read_photos, read_pictures


def noise_image(width: int, height: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def seen(picture: object, size: int = 8) -> np.ndarray:
    """[H, W, 3] of 0..255."""
    made = read_pictures(picture, size)  # type: ignore[arg-type]
    assert made.shape == (1, 3, size, size)
    assert made.dtype == torch.float32
    return made[0].permute(1, 2, 0).numpy().astype(np.float64) * 255


def slow_small(pixels: np.ndarray, size: int) -> np.ndarray:
    """Twin of crop and area mean: the integral of the piecewise constant square over each cell, pixel by pixel."""
    height, width = pixels.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    small, cell = np.zeros((size, size, 3)), side / size
    for i, j in np.ndindex(size, size):
        total = 0.0
        for y, x in np.ndindex(side, side):
            tall = min(y + 1, (i + 1) * cell) - max(y, i * cell)
            wide = min(x + 1, (j + 1) * cell) - max(x, j * cell)
            if tall > 0 and wide > 0:
                small[i, j] += tall * wide * pixels[top + y, left + x]
                total += tall * wide
        small[i, j] /= total
    return small


def saved(path: Path, image: Image.Image, **options: object) -> Path:
    image.save(path, **options)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(
    ("width", "height", "size"), [(8, 8, 8), (16, 16, 8), (21, 13, 5), (9, 30, 4), (3, 5, 8), (1, 1, 4)]
)
def test_crop_and_area_mean_against_a_slow_twin(width: int, height: int, size: int) -> None:
    pixels = noise_image(width, height)
    np.testing.assert_allclose(seen(pixels, size), slow_small(pixels, size), atol=1e-3)


def test_area_mean_by_hand() -> None:
    np.testing.assert_allclose(area_mean(np.array([1.0, 4.0, 7.0]), 2), [2.0, 6.0])
    np.testing.assert_allclose(area_mean(np.array([3.0, 9.0]), 4), [3.0, 3.0, 9.0, 9.0])


def test_files_pictures_arrays_and_streams_agree(tmp_path: Path) -> None:
    pixels = noise_image(20, 12)
    file = saved(tmp_path / "a.png", Image.fromarray(pixels))
    expected = slow_small(pixels, 8)
    stream = io.BytesIO(file.read_bytes())
    for picture in (file, str(file), stream, Image.fromarray(pixels), pixels, (pixels / 255).astype(np.float32)):
        np.testing.assert_allclose(seen(picture), expected, atol=1e-2)


def test_several_pictures_keep_their_order(tmp_path: Path) -> None:
    levels = (10, 200, 90)
    files = [saved(tmp_path / f"{n}.png", Image.new("L", (9, 9), n)) for n in levels]
    made = read_pictures(files, 8) * 255
    np.testing.assert_allclose(made.mean((1, 2, 3)), levels, atol=1e-3)
    stacked = np.stack([np.full((9, 9, 3), n, np.uint8) for n in levels])
    np.testing.assert_allclose(read_pictures(stacked, 8) * 255, made, atol=1e-3)


@pytest.mark.parametrize(("size", "rows", "columns"), [((4, 8), (2, 10), (0, 16)), ((8, 4), (0, 12), (5, 11))])
def test_a_model_of_another_shape_sees_the_largest_window_of_that_shape(
    size: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    picture = np.arange(12 * 16 * 3, dtype=np.uint8).reshape(12, 16, 3)
    window = picture[slice(*rows), slice(*columns)]
    expected = area_mean(area_mean(window, size[0]).swapaxes(0, 1), size[1]).swapaxes(0, 1)
    seen = read_pictures(picture, size)[0].permute(1, 2, 0)
    np.testing.assert_allclose(seen * 255, expected, atol=1e-3)


def test_a_tensor_stays_as_it_is() -> None:
    tensor = torch.rand(2, 3, 8, 8)
    assert read_pictures(tensor, 8) is tensor
    assert torch.equal(read_pictures(tensor[0], 8), tensor[:1])


@pytest.mark.parametrize("ending", ["jpg", "webp", "gif", "bmp", "tif", "ppm", "png"])
def test_formats(tmp_path: Path, ending: str) -> None:
    pixels = np.repeat(np.repeat(noise_image(4, 4, seed=3), 16, 0), 16, 1)
    options = {"quality": 98, "subsampling": 0} if ending == "jpg" else {"lossless": True} if ending == "webp" else {}
    file = saved(tmp_path / f"x.{ending}", Image.fromarray(pixels), **options)
    np.testing.assert_allclose(seen(file, 4), noise_image(4, 4, seed=3), atol=16 if ending == "jpg" else 3)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path: Path, orientation: int) -> None:
    """What the numbers mean, by the EXIF standard: where row 0 and column 0 of the stored picture are seen."""
    upright = noise_image(8, 8)
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.swapaxes(0, 1),
        6: np.rot90(upright, 1),
        7: np.rot90(upright, 2).swapaxes(0, 1),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = saved(tmp_path / "x.png", Image.fromarray(np.ascontiguousarray(stored)), exif=exif)
    np.testing.assert_allclose(seen(file), upright, atol=1e-3)


def test_transparent_parts_lie_over_grey() -> None:
    pixels = np.zeros((8, 8, 4), np.uint8)
    pixels[..., 0] = 200
    pixels[:4, :, 3] = 255
    pixels[6:, :, 3] = 51
    result = seen(pixels)
    np.testing.assert_allclose(result[:4], np.broadcast_to([200, 0, 0], (4, 8, 3)), atol=0.01)
    np.testing.assert_allclose(result[4:6], 128, atol=0.01)
    np.testing.assert_allclose(result[6:], np.broadcast_to(np.array([200, 0, 0]) * 0.2 + 128 * 0.8, (2, 8, 3)), atol=1)
    np.testing.assert_allclose(seen(pixels / 255.0), result, atol=1)


def test_grey_palette_and_other_modes(tmp_path: Path) -> None:
    grey = noise_image(8, 8, 1)[..., 0]
    np.testing.assert_allclose(seen(Image.fromarray(grey)), np.repeat(grey[..., None], 3, 2), atol=1e-3)
    np.testing.assert_allclose(seen(grey[..., None]), np.repeat(grey[..., None], 3, 2), atol=1e-3)
    colours = Image.fromarray(noise_image(8, 8))
    palette = colours.convert("P", palette=Image.Palette.ADAPTIVE, colors=16)
    expected = np.asarray(palette.convert("RGB"))
    np.testing.assert_allclose(seen(saved(tmp_path / "p.png", palette)), expected, atol=1e-3)
    through = seen(saved(tmp_path / "t.png", palette, transparency=3))
    hidden = np.asarray(palette) == 3
    assert hidden.any()
    np.testing.assert_allclose(through, np.where(hidden[..., None], 128, expected), atol=1e-3)
    bits = Image.fromarray(grey > 128)
    np.testing.assert_allclose(seen(saved(tmp_path / "b.png", bits))[..., 0], (grey > 128) * 255, atol=1e-3)
    alpha = Image.merge("LA", [Image.fromarray(grey), Image.new("L", (8, 8), 0)])
    np.testing.assert_allclose(seen(saved(tmp_path / "la.png", alpha)), 128, atol=1e-3)
    ink = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    np.testing.assert_allclose(seen(saved(tmp_path / "c.jpg", ink)), np.broadcast_to([255, 0, 0], (8, 8, 3)), atol=4)
    key = saved(tmp_path / "k.png", Image.new("RGB", (8, 8), (1, 2, 3)), transparency=(1, 2, 3))
    np.testing.assert_allclose(seen(key), 128, atol=1e-3)


def test_sixteen_bits(tmp_path: Path) -> None:
    deep = (np.arange(64, dtype=np.uint16) * 1040).reshape(8, 8)
    expected = np.repeat(deep[..., None] / 65535 * 255, 3, 2)
    np.testing.assert_allclose(seen(deep), expected, atol=0.01)
    np.testing.assert_allclose(seen(saved(tmp_path / "d.png", Image.fromarray(deep))), expected, atol=0.01)
    np.testing.assert_allclose(seen(saved(tmp_path / "d.tif", Image.fromarray(deep))), expected, atol=0.01)
    wide = Image.fromarray(deep.astype(np.int32))
    np.testing.assert_allclose(seen(wide), expected, atol=0.01)
    np.testing.assert_allclose(seen(deep.astype(">u2")), expected, atol=0.01)
    foreign = Image.frombytes("I;16B", (8, 8), deep.astype(">u2").tobytes())
    np.testing.assert_allclose(seen(saved(tmp_path / "b.tif", foreign)), expected, atol=0.01)
    with pytest.raises(UserError, match=r"w.tif: pixels must be 8 bits, 16 bits.*save it as PNG or JPEG"):
        seen(saved(tmp_path / "w.tif", Image.fromarray(deep.astype(np.int32) + 70_000)))
    for kind in (np.int64, np.uint32):
        with pytest.raises(UserError, match=f"pixels of type {np.dtype(kind)}; make them uint8 .0 to 255. or uint16"):
            seen(deep.astype(kind))


def test_the_first_frame_of_an_animation(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    file = saved(tmp_path / "x.gif", frames[0], save_all=True, append_images=frames[1:])
    np.testing.assert_allclose(seen(file), np.broadcast_to([255, 0, 0], (8, 8, 3)), atol=1)


def test_a_picture_of_many_megapixels(tmp_path: Path) -> None:
    file = saved(tmp_path / "large.jpg", Image.new("RGB", (6000, 4000), (10, 120, 250)))
    np.testing.assert_allclose(seen(file, 64), np.broadcast_to([10, 120, 250], (64, 64, 3)), atol=2)


def refusal(picture: object, size: int = 8) -> str:
    with pytest.raises(UserError) as caught:
        read_pictures(picture, size)  # type: ignore[arg-type]
    line = str(caught.value)
    assert "\n" not in line
    assert line.isprintable()
    return line


def png_header(width: int, height: int) -> bytes:
    """A PNG that promises pixels it does not have."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


FOREIGN = {
    "x.heic": (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"),
    "x.avif": (b"\0\0\0\x1cftypavif\0\0\0\0", "AVIF"),
    "x.svg": (b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
    "y.svg": (b"  <svg width='1'/>", "SVG"),
    "x.pdf": (b"%PDF-1.7\n", "PDF"),
    "x.eps": (b"%!PS-Adobe-3.0 EPSF-3.0\n", "PostScript"),
    "x.raf": (b"FUJIFILMCCD-RAW 0201", "RAW"),
    "x.cr2": (b"II*\0\x10\0\0\0CR\x02\0", "RAW"),
    "x.nef": (b"MM\0*\0\0\0\x08", "RAW"),
    "x.psd": (b"8BPS\0\x01", "Photoshop"),
    "x.jxl": (b"\xff\x0a\x00", "JPEG XL"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_known_formats_that_are_not_read(tmp_path: Path, name: str) -> None:
    content, kind = FOREIGN[name]
    (tmp_path / name).write_bytes(content)
    line = refusal(tmp_path / name)
    assert kind in line
    assert name in line
    assert "PNG or JPEG" in line


def test_a_foreign_format_is_known_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(FOREIGN["x.heic"][0])
    assert "HEIC" in refusal(tmp_path / "x.jpg")
    assert "HEIC" in refusal(io.BytesIO(FOREIGN["x.heic"][0]))


def test_damaged_and_strange_files(tmp_path: Path) -> None:
    whole = saved(tmp_path / "whole.jpg", Image.fromarray(noise_image(64, 64))).read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    assert "cut.jpg: damaged or cut off" in refusal(tmp_path / "cut.jpg")
    (tmp_path / "cut.png").write_bytes(png_header(50, 50))
    assert "cut.png: damaged or cut off" in refusal(tmp_path / "cut.png")
    (tmp_path / "words.png").write_text("these are words, not pixels")
    assert "words.png: not a picture" in refusal(tmp_path / "words.png")
    (tmp_path / "none.png").write_bytes(b"")
    assert "none.png: an empty file" in refusal(tmp_path / "none.png")
    assert "missing.png: no such file" in refusal(tmp_path / "missing.png")
    assert "a folder" in refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe.png")
    assert "not a regular file" in refusal(tmp_path / "pipe.png")
    assert "no such file" in refusal("bad\0name.png")


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bomb.png").write_bytes(png_header(7000, 6000))
    assert "bomb.png: more than 40 megapixels" in refusal(tmp_path / "bomb.png")
    (tmp_path / "bomb.png").write_bytes(png_header(60_000, 60_000))  # beyond PIL's own guard
    assert "bomb.png: more than 40 megapixels" in refusal(tmp_path / "bomb.png")
    assert "40 megapixels" in refusal(np.broadcast_to(np.uint8(0), (7000, 6000)))
    with open(tmp_path / "heavy.png", "wb") as file:
        file.truncate(photos.MOST_BYTES + 1)
    assert "heavy.png: larger than 20 MB" in refusal(tmp_path / "heavy.png")
    assert "more than 32" in refusal([noise_image(2, 2)] * 33)
    assert read_pictures([noise_image(2, 2)] * 32, 4).shape == (32, 3, 4, 4)
    assert "name at least one" in refusal([])


def test_a_stream_is_not_read_beyond_the_limit() -> None:
    class Endless(io.RawIOBase):
        asked = 0

        def read(self, count: int = -1) -> bytes:
            self.asked += count
            assert 0 < self.asked <= photos.MOST_BYTES + 1
            return b"x" * count

    assert "picture 2: larger than 20 MB" in refusal([noise_image(2, 2), Endless()])


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 2, 2), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros(5, np.uint8),
        np.full((4, 4), np.nan),
        np.full((4, 4, 3), 1.5),
        np.full((4, 4), -1),
        np.full((4, 4), 70_000),
        np.zeros((4, 4), complex),
        np.array([["a"]]),
    ],
    ids=str,
)
def test_arrays_that_are_no_pictures(array: np.ndarray) -> None:
    assert refusal(array).startswith("picture 1: ")


def test_messages_stay_on_one_line_whatever_a_file_is_called(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "two\nlines\x1b[31m.png")
    (tmp_path / "\x07bell.png").write_text("no picture")
    assert "bell.png" in refusal(tmp_path / "\x07bell.png")


def outcome(content: bytes) -> str:
    try:
        made = read_pictures(io.BytesIO(content), 8)
    except UserError as error:
        return str(error)
    assert made.min() >= 0
    assert made.max() <= 1
    return ""


@pytest.mark.parametrize("ending", ["png", "jpg", "gif", "tif", "webp", "bmp", "ppm"])
def test_random_damage_is_always_one_line(tmp_path: Path, ending: str) -> None:
    """Flipped bytes either pass as a picture or end in one line, never in another exception."""
    generator = np.random.default_rng(5)
    file = saved(tmp_path / f"x.{ending}", Image.fromarray(noise_image(16, 16)))
    whole = np.frombuffer(file.read_bytes(), np.uint8)
    for _ in range(60):
        broken = whole.copy()
        places = generator.integers(0, min(len(whole), generator.choice([40, 10_000])), 3)
        broken[places] = generator.integers(0, 256, 3)
        assert "\n" not in outcome(broken.tobytes())


def test_a_photo_and_the_way_back_to_its_pixels() -> None:
    """A mask of the model's left half becomes the left half of the window, and nothing outside it."""
    (photo,) = read_photos(noise_image(60, 40), 8)
    assert photo.size == (40, 60)
    assert (photo.window.top, photo.window.left, photo.window.crop_height, photo.window.crop_width) == (0, 10, 40, 40)
    left = torch.zeros(8, 8)
    left[:, :4] = 1
    segment = photo.segment(torch.stack([1 - left, left]))
    assert (segment[:, :10] == photos.OUTSIDE).all()
    assert (segment[:, 50:] == photos.OUTSIDE).all()
    assert (segment[:, 10:30] == 1).all()
    assert (segment[:, 30:50] == 0).all()
    np.testing.assert_allclose(photo.enlarged(torch.full((8, 8), 0.25)), 0.25, rtol=1e-6)
    small = photo.reduced(30)
    assert small.size == (20, 30)
    assert (small.segment(torch.stack([1 - left, left]))[:, 5:15] == 1).all()
    assert photo.reduced(100) is photo
    assert read_photos([photo], 8) == [photo]


def test_first_bytes_of_videos_and_of_pictures_that_begin_alike() -> None:
    assert photos.looks_like_video(b"\0\0\0\x20ftypisom" + b"\0" * 40)
    assert photos.looks_like_video(b"\x1a\x45\xdf\xa3" + b"\0" * 40)
    for brand in (b"heic", b"mif1", b"avif", b"crx "):
        assert not photos.looks_like_video(b"\0\0\0\x20ftyp" + brand + b"\0" * 40)
    assert not photos.looks_like_video(b"\x89PNG\r\n\x1a\n")
