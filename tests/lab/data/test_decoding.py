"""Files become pixels: scaled, cropped and mirrored, whatever the number of workers; a broken file is named."""

import io
import os
import signal
import struct

import numpy as np
import pytest
import torch
from PIL import Image, UnidentifiedImageError

from data_files import write_folder, write_picture
from learnpool.lab.data import Crop, DataError, Files, decode, iter_batches, load, read_image
from learnpool.lab.data.decoding import SUFFIXES, ignore_interrupts


@pytest.mark.parametrize("size", [(64, 48), (48, 64), (56, 56), (300, 61), (20, 18)])
@pytest.mark.parametrize("crop", [(0.5, 0.5, 0.0), (0.0, 0.99, 0.7), (0.3, 0.1, 0.2)])
def test_scaled_cropped_and_mirrored(size, crop, tmp_path):
    """The same as scaling everything with Pillow and cutting the crop out."""
    write_picture(tmp_path / "x.png", size)
    ours = decode(tmp_path / "x.png", Crop(49), crop)
    image = Image.open(tmp_path / "x.png")
    width, height = (max(56, round(56 / min(size) * length)) for length in size)
    scaled = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR)).astype(int)
    top, left = round(crop[0] * (height - 49)), round(crop[1] * (width - 49))
    piece = scaled[top : top + 49, left : left + 49]
    expected = piece[:, ::-1] if crop[2] >= 0.5 else piece
    assert ours.shape == (3, 49, 49)
    assert np.abs(ours.permute(1, 2, 0).numpy() - expected).max() <= 1  # a box is rounded, not a whole pixel


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_every_kind_of_image_becomes_three_channels(mode, tmp_path):
    path = tmp_path / ("x.tiff" if mode == "CMYK" else "x.png")
    write_picture(path, mode=mode)
    assert decode(path, Crop(16), (0.5, 0.5, 0.0)).shape == (3, 16, 16)


def test_a_large_jpeg_is_decoded_at_a_lower_scale(tmp_path, monkeypatch):
    write_picture(tmp_path / "x.jpg", (800, 600), quality=95)
    seen = []
    convert = Image.Image.convert
    monkeypatch.setattr(Image.Image, "convert", lambda self, *given: seen.append(self.size) or convert(self, *given))
    small = decode(tmp_path / "x.jpg", Crop(64))
    assert seen == [(100, 75)]
    write_picture(tmp_path / "x.png", (800, 600))
    exact = decode(tmp_path / "x.png", Crop(64))
    assert (small.float() - exact.float()).abs().mean() < 4


@pytest.fixture
def photos(tmp_path):
    write_folder(tmp_path, {"train/cat": 8, "train/dog": 7, "test/cat": 1, "test/dog": 1})
    return load(str(tmp_path)).train


def read_batches(files, batches, **options):
    return list(iter_batches(files, batches, Crop(24), **options))


def test_batches_come_in_order(photos):
    batches = [torch.tensor([3, 14, 0]), torch.tensor([8])]
    out = read_batches(photos, batches)
    assert [tuple(images.shape) for images, _ in out] == [(3, 3, 24, 24), (1, 3, 24, 24)]
    assert [labels.tolist() for _, labels in out] == [[0, 1, 0], [1]]
    assert out[0][0].dtype == torch.uint8
    assert torch.equal(out[0][0][1], decode(photos.paths[14], Crop(24)))


def test_neither_workers_nor_sharing_change_a_pixel(photos):
    order = torch.randperm(15, generator=torch.Generator().manual_seed(0)).split(6)

    def run(batches, workers=0):
        return torch.cat(
            [x for x, _ in read_batches(photos, batches, generator=torch.Generator().manual_seed(5), workers=workers)]
        )

    state = torch.get_rng_state()
    alone = run(order)
    assert torch.equal(run(order, workers=2), alone)
    rows = torch.cat([torch.arange(15).split(6)[number][1::2] for number in range(3)])
    assert torch.equal(run([batch[1::2] for batch in order]), alone[rows])
    assert torch.equal(torch.get_rng_state(), state)
    plain = torch.cat([x for x, _ in read_batches(photos, order)])
    assert not torch.equal(alone, plain)


def test_random_crops_differ_from_image_to_image(tmp_path):
    write_picture(tmp_path / "a/x.png", (60, 40))
    files = Files((tmp_path / "a/x.png",) * 60, torch.zeros(60, dtype=torch.int64))
    ((images, _),) = read_batches(files, [torch.arange(60)], generator=torch.Generator().manual_seed(0))
    assert len({image.numpy().tobytes() for image in images}) > 40


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("content", [b"", b"no image", "truncated", "bomb"])
def test_an_image_that_does_not_decode_is_named(content, workers, photos, monkeypatch):
    broken = photos.paths[4]
    if content == "truncated":
        content = broken.read_bytes()[:-300]
    if content == "bomb":
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
        with pytest.raises(DataError, match="does not decode"):
            read_batches(photos, [torch.arange(15)], workers=workers)
        return
    broken.write_bytes(content)
    batches = torch.arange(15).split(4)
    with pytest.raises(DataError, match=f"^{broken}: wanted an image, got a file that does not decode") as error:
        read_batches(photos, batches, workers=workers)
    assert "Traceback" not in str(error.value)
    skipped = []
    out = read_batches(photos, batches, workers=workers, skipped=skipped)
    assert [len(labels) for _, labels in out] == [4, 3, 4, 3]
    assert len(skipped) == 1
    assert skipped[0].startswith(f"{broken}: ")
    skipped.clear()
    assert [
        len(labels) for _, labels in read_batches(photos, [torch.tensor([4]), torch.tensor([5])], skipped=skipped)
    ] == [1]


def test_a_file_that_is_gone_is_named(photos):
    photos.paths[2].unlink()
    with pytest.raises(DataError, match=f"{photos.paths[2]}: wanted an image, got a file that does not decode"):
        read_batches(photos, [torch.arange(15)])


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_workers_leave_ctrl_c_to_their_parent():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ignore_interrupts(0)
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_animation_gives_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    (tmp_path / "x.gif").write_bytes(buffer.getvalue())
    assert decode(tmp_path / "x.gif", Crop(8))[:, 4, 4].tolist() == [255, 0, 0]


GREY_16 = np.linspace(0, 65_535, 256).reshape(16, 16).round().astype(np.uint16)  # every grey level once


def write_pgm(path, cells, largest):
    path.write_bytes(f"P5 {cells.shape[1]} {cells.shape[0]} {largest}\n".encode() + cells.astype(">u2").tobytes())


@pytest.mark.parametrize("suffix", ["png", "tiff", "pgm"])
def test_16_bits_of_grey_are_scaled_to_8(suffix, tmp_path):
    path = tmp_path / f"x.{suffix}"
    if suffix == "pgm":
        write_pgm(path, GREY_16, 65_535)
    else:
        Image.fromarray(GREY_16).save(path)
    image = read_image(path, "L")
    assert np.asarray(image).flatten().tolist() == list(range(256))
    assert decode(path, Crop(14))[0].float().mean() < 140  # not white


def test_12_bits_of_a_tiff_are_scaled_to_8(tmp_path):
    path = tmp_path / "x.tiff"
    cells = GREY_16 >> 4
    pairs = cells.reshape(-1, 2).astype(int)
    packed = np.stack([pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], 1)
    entries = [(256, 16), (257, 16), (258, 12), (259, 1), (262, 1), (273, 150), (277, 1), (278, 16), (279, packed.size)]
    table = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    header = b"II*\0" + struct.pack("<IH", 8, len(entries)) + table + bytes(4)
    path.write_bytes(header.ljust(150, b"\0") + packed.astype(np.uint8).tobytes())
    assert np.asarray(read_image(path, "L")).flatten().tolist() == list(range(256))


def test_16_bits_of_colour_are_scaled_to_8(tmp_path):
    cells = np.stack([GREY_16, GREY_16[::-1], GREY_16.T], -1)
    (tmp_path / "x.ppm").write_bytes(b"P6 16 16 65535\n" + cells.astype(">u2").tobytes())
    assert np.asarray(read_image(tmp_path / "x.ppm")).tolist() == (cells >> 8).tolist()


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_32_bits_are_refused(dtype, photos):
    path = photos.paths[3].with_suffix(".tiff")
    Image.fromarray(GREY_16.astype(dtype)).save(path)
    files = Files((path,), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(DataError, match=f"{path}: .*wanted 8 or 16 bits a channel, got 32"):
        read_batches(files, [torch.arange(1)])


POSTSCRIPT = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\n%%EndComments\n0 0 moveto 9 9 lineto stroke\nshowpage\n"
)


@pytest.mark.parametrize("name", ["x.jpg", "x.png", "x.tiff"])
def test_postscript_never_reaches_ghostscript(name, tmp_path, monkeypatch):
    from PIL import EpsImagePlugin

    def run(*given, **options):
        raise SystemExit("Ghostscript was called")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", run)
    (tmp_path / name).write_bytes(POSTSCRIPT)
    files = Files((tmp_path / name,), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(DataError, match="none of BMP, GIF, JPEG, PNG, PPM, TIFF, WEBP"):
        read_batches(files, [torch.arange(1)])


@pytest.mark.parametrize("kind", ["ico", "tga", "pcx", "sgi"])
def test_only_the_formats_we_name_are_opened(kind, tmp_path):
    write_picture(tmp_path / f"x.{kind}")
    (tmp_path / f"x.{kind}").rename(tmp_path / "x.png")
    with pytest.raises(UnidentifiedImageError):
        read_image(tmp_path / "x.png")


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
def test_every_suffix_has_its_format(suffix, tmp_path):
    write_picture(tmp_path / f"x{suffix}", mode="L" if suffix == ".pgm" else "RGB")
    assert decode(tmp_path / f"x{suffix}", Crop(16)).shape == (3, 16, 16)
