"""A folder of images: its layouts, its mistakes, and that neither workers nor sharing change a pixel."""

import io
import os
import signal

import numpy as np
import pytest
import torch
from PIL import Image

from learnpool.lab.data import DataError, Files, Folder, load, stream
from learnpool.lab.data.folder import decode


def picture(path, size=(40, 30), mode="RGB", seed=0, **options):
    """Write a smooth image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).convert(mode).save(path, **options)


def folder(root, counts, seed=0):
    """``{"train/cat": 3}``: three images there."""
    for place, count in counts.items():
        for number in range(count):
            picture(root / place / f"{number:02}.png", seed=[seed, number, *place.encode()])
    return root


TWO = {"train/cat": 3, "train/dog": 2, "test/cat": 2, "test/dog": 1}


@pytest.mark.parametrize("name", ["test", "val", "valid", "validation"])
def test_train_beside_test(name, tmp_path):
    folder(tmp_path, {place.replace("test", name): count for place, count in TWO.items()})
    data = load(str(tmp_path))
    assert isinstance(data, Folder)
    assert data.classes == ("cat", "dog")
    assert [f"{p.parent.name}{p.stem}" for p in data.train.paths] == ["cat00", "cat01", "cat02", "dog00", "dog01"]
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1]
    assert data.test.labels.tolist() == [0, 0, 1]
    assert {path.parts[-3] for path in data.test.paths} == {name}


def test_a_test_set_without_labels_is_left_for_val(tmp_path):
    folder(tmp_path, {place.replace("test", "val"): count for place, count in TWO.items()})
    (tmp_path / "test").mkdir()
    picture(tmp_path / "test" / "1.jpg")
    assert {path.parts[-3] for path in load(str(tmp_path)).test.paths} == {"val"}


def test_classes_alone_are_split_the_same_way_every_time(tmp_path):
    folder(tmp_path, {"ape": 12, "bee": 2, "cow": 5})
    data = load(str(tmp_path))
    assert torch.bincount(data.test.labels).tolist() == [2, 1, 1]
    assert torch.bincount(data.train.labels).tolist() == [10, 1, 4]
    assert len({*data.train.paths, *data.test.paths}) == 19
    assert load(str(tmp_path)).test.paths == data.test.paths
    assert all(
        data.classes[label] == path.parent.name for path, label in zip(data.train.paths, data.train.labels, strict=True)
    )


def test_only_images_count_in_any_depth_and_case(tmp_path):
    folder(tmp_path, TWO)
    picture(tmp_path / "train/cat/deep/er/X.JPEG")
    for other in ("notes.txt", ".hidden.png", "Thumbs.db"):
        (tmp_path / "train/cat" / other).write_text("no image")
    (tmp_path / "train/.git").mkdir()
    assert torch.bincount(load(str(tmp_path)).train.labels).tolist() == [4, 2]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({}, "wanted a folder for each of at least two classes, got 0: none"),
        ({"cat": 5}, "wanted a folder for each of at least two classes, got 1: cat"),
        ({"cat": 5, "dog": 1}, "class dog has 1 images, too few for train and test"),
        ({"train/cat": 5, "test/cat": 5}, "train: wanted a folder for each of at least two classes, got 1: cat"),
        ({"train/cat": 5, "train/dog": 5}, "wanted a folder test or val with a folder for each class beside train"),
        (TWO | {"test/dog": 0}, "class dog has no images for test; the classes there: cat"),
        (TWO | {"train/dog": 0}, "class dog has no images for train; the classes there: cat"),
        (TWO | {"train/eel": 1}, "class eel has no images for test; the classes there: cat, dog"),
        (TWO | {"test/eel": 1}, "class eel has no images for train; the classes there: cat, dog"),
    ],
)
def test_a_folder_that_will_not_do(counts, said, tmp_path):
    folder(tmp_path, counts)
    with pytest.raises(DataError, match=said) as error:
        load(str(tmp_path))
    assert str(error.value).startswith(str(tmp_path))


def test_an_empty_class_folder(tmp_path):
    folder(tmp_path, TWO)
    for split in ("train", "test"):
        (tmp_path / split / "eel").mkdir()
    with pytest.raises(DataError, match="class eel has no images for test"):
        load(str(tmp_path))
    folder(tmp_path / "flat", {"cat": 3, "dog": 3})
    (tmp_path / "flat/eel").mkdir()
    with pytest.raises(DataError, match="class eel has 0 images, too few"):
        load(str(tmp_path / "flat"))


@pytest.mark.parametrize("size", [(64, 48), (48, 64), (56, 56), (300, 61), (20, 18)])
@pytest.mark.parametrize("chosen", [(0.5, 0.5, 0.0), (0.0, 0.99, 0.7), (0.3, 0.1, 0.2)])
def test_scaled_cropped_and_mirrored(size, chosen, tmp_path):
    """The same as scaling everything with Pillow and cutting the crop out."""
    picture(tmp_path / "x.png", size)
    ours = decode(tmp_path / "x.png", 49, chosen)
    image = Image.open(tmp_path / "x.png")
    width, height = (max(56, round(56 / min(size) * length)) for length in size)
    scaled = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR)).astype(int)
    top, left = round(chosen[0] * (height - 49)), round(chosen[1] * (width - 49))
    crop = scaled[top : top + 49, left : left + 49]
    expected = crop[:, ::-1] if chosen[2] >= 0.5 else crop
    assert ours.shape == (3, 49, 49)
    assert np.abs(ours.permute(1, 2, 0).numpy() - expected).max() <= 1  # a box is rounded, not a whole pixel


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_every_kind_of_image_becomes_three_channels(mode, tmp_path):
    path = tmp_path / ("x.tiff" if mode == "CMYK" else "x.png")
    picture(path, mode=mode)
    assert decode(path, 16, (0.5, 0.5, 0.0)).shape == (3, 16, 16)


def test_a_large_jpeg_is_decoded_at_a_lower_scale(tmp_path, monkeypatch):
    picture(tmp_path / "x.jpg", (800, 600), quality=95)
    seen = []
    convert = Image.Image.convert
    monkeypatch.setattr(Image.Image, "convert", lambda self, *given: seen.append(self.size) or convert(self, *given))
    small = decode(tmp_path / "x.jpg", 64, (0.5, 0.5, 0.0))
    assert seen == [(100, 75)]
    picture(tmp_path / "x.png", (800, 600))
    exact = decode(tmp_path / "x.png", 64, (0.5, 0.5, 0.0))
    assert (small.float() - exact.float()).abs().mean() < 4


@pytest.fixture
def photos(tmp_path):
    folder(tmp_path, {"train/cat": 8, "train/dog": 7, "test/cat": 1, "test/dog": 1})
    return load(str(tmp_path)).train


def streamed(files, batches, **options):
    return list(stream(files, batches, 24, **options))


def test_batches_come_in_order(photos):
    batches = [torch.tensor([3, 14, 0]), torch.tensor([8])]
    out = streamed(photos, batches)
    assert [tuple(images.shape) for images, _ in out] == [(3, 3, 24, 24), (1, 3, 24, 24)]
    assert [labels.tolist() for _, labels in out] == [[0, 1, 0], [1]]
    assert out[0][0].dtype == torch.uint8
    assert torch.equal(out[0][0][1], decode(photos.paths[14], 24, (0.5, 0.5, 0.0)))


def test_neither_workers_nor_sharing_change_a_pixel(photos):
    order = torch.randperm(15, generator=torch.Generator().manual_seed(0)).split(6)

    def run(batches, workers=0):
        return torch.cat(
            [x for x, _ in streamed(photos, batches, generator=torch.Generator().manual_seed(5), workers=workers)]
        )

    state = torch.get_rng_state()
    alone = run(order)
    assert torch.equal(run(order, workers=2), alone)
    rows = torch.cat([torch.arange(15).split(6)[number][1::2] for number in range(3)])
    assert torch.equal(run([batch[1::2] for batch in order]), alone[rows])
    assert torch.equal(torch.get_rng_state(), state)
    plain = torch.cat([x for x, _ in streamed(photos, order)])
    assert not torch.equal(alone, plain)


def test_random_crops_differ_from_image_to_image(tmp_path):
    picture(tmp_path / "a/x.png", (60, 40))
    files = Files((tmp_path / "a/x.png",) * 60, torch.zeros(60, dtype=torch.int64))
    ((images, _),) = streamed(files, [torch.arange(60)], generator=torch.Generator().manual_seed(0))
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
            streamed(photos, [torch.arange(15)], workers=workers)
        return
    broken.write_bytes(content)
    batches = torch.arange(15).split(4)
    with pytest.raises(DataError, match=f"^{broken}: wanted an image, got a file that does not decode") as error:
        streamed(photos, batches, workers=workers)
    assert "Traceback" not in str(error.value)
    skipped = []
    out = streamed(photos, batches, workers=workers, skipped=skipped)
    assert [len(labels) for _, labels in out] == [4, 3, 4, 3]
    assert len(skipped) == 1
    assert skipped[0].startswith(f"{broken}: ")
    skipped.clear()
    assert [len(labels) for _, labels in streamed(photos, [torch.tensor([4]), torch.tensor([5])], skipped=skipped)] == [
        1
    ]


def test_a_file_that_is_gone_is_named(photos):
    photos.paths[2].unlink()
    with pytest.raises(DataError, match=f"{photos.paths[2]}: wanted an image, got a file that does not decode"):
        streamed(photos, [torch.arange(15)])


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_workers_leave_ctrl_c_to_their_parent():
    from learnpool.lab.data.folder import deaf

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        deaf(0)
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_animation_gives_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    (tmp_path / "x.gif").write_bytes(buffer.getvalue())
    assert decode(tmp_path / "x.gif", 8, (0.5, 0.5, 0.0))[:, 4, 4].tolist() == [255, 0, 0]
