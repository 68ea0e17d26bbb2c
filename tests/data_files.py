"""Small data sets: files in the official formats, 4 images of each class and 2 for the test; folders of images."""

import gzip
import io
import struct
import tarfile
from dataclasses import replace

import numpy as np
import torch
from PIL import Image
from scipy.io import savemat

from learnpool.lab.data.catalog import SOURCES

TRAIN, TEST, EXTRA = 4, 2, 3
EACH = {"train": TRAIN, "test": TEST, "extra": EXTRA}


TWO_CLASSES = {"train/cat": 3, "train/dog": 2, "test/cat": 2, "test/dog": 1}


def shrink_sources(monkeypatch):
    """Let every official data set have as many images as the files below."""
    for name, source in list(SOURCES.items()):
        classes = len(source.classes)
        splits = [split for split in EACH if split in source.counts]
        counts = {split: EACH[split] * classes for split in splits}
        balance = {split: (EACH[split],) * classes for split in splits}
        monkeypatch.setitem(SOURCES, name, replace(source, counts=counts, balance=balance))


def cells(name, split):
    """Images [N, C, H, W] of bytes and labels [N]; every call the same, every set and split different."""
    source = SOURCES[name]
    random = np.random.default_rng([len(name), *split.encode()])
    labels = random.permutation(np.repeat(np.arange(len(source.classes)), EACH[split]))
    return random.integers(0, 256, (len(labels), *source.shape), np.uint8), labels


def idx_bytes(array):
    """An idx file of unsigned bytes."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_idx(folder, name="mnist", dot=False, gz=True):
    """The four files of MNIST or Fashion-MNIST."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, start in (("train", "train"), ("test", "t10k")):
        images, labels = cells(name, split)
        for what, array in (("images-idx3", images[:, 0]), ("labels-idx1", labels)):
            file = f"{start}-{what}-ubyte".replace("-idx", ".idx" if dot else "-idx")
            data = idx_bytes(array)
            (folder / (file + ".gz" * gz)).write_bytes(gzip.compress(data) if gz else data)


def string(value):
    """A string as Python 2 pickled it."""
    return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value


def integers(values):
    """A list of integers."""
    return b"](" + b"".join(b"K" + bytes([value]) for value in values) + b"e"


def array_pickle(array, kind=b"u1", order=b"\x89", module=b"numpy.core.multiarray"):
    """A matrix of bytes as Python 2's numpy pickled it."""
    shape = b"(" + b"".join(b"J" + struct.pack("<i", size) for size in array.shape) + b"t"
    dtype = b"cnumpy\ndtype\n" + string(kind) + b"K\x00K\x01\x87R(K\x03" + string(b"|") + b"NNNJ\xff\xff\xff\xff"
    dtype += b"J\xff\xff\xff\xffK\x00tb"
    start = b"c" + module + b"\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + string(b"b") + b"\x87R"
    return start + b"(K\x01" + shape + dtype + order + string(array.tobytes()) + b"tb"


def batch_pickle(images, labels, fine=False):
    """A batch as on CIFAR's page: protocol 2 of Python 2."""
    items = string(b"batch_label") + string(b"a batch")
    if fine:
        items += string(b"coarse_labels") + integers([int(label) // 5 for label in labels])
    items += string(b"fine_labels" if fine else b"labels") + integers(labels.tolist())
    items += string(b"data") + array_pickle(images.reshape(len(images), -1))
    return b"\x80\x02}(" + items + b"u."


def batch_records(images, labels, fine=False):
    """A binary batch."""
    ahead = [labels // 5, labels] if fine else [labels]
    rows = [np.stack(ahead, 1).astype(np.uint8), images.reshape(len(images), -1)]
    return np.concatenate(rows, 1).tobytes()


def cifar_files(name, binary=False):
    """Name and content of each file of CIFAR10 or CIFAR100."""
    fine, make, end = name == "cifar100", batch_records if binary else batch_pickle, ".bin" if binary else ""
    images, labels = cells(name, "train")
    parts = 1 if fine else 5
    names = ["train"] if fine else [f"data_batch_{number}" for number in range(1, 6)]
    cut = zip(names, np.split(images, parts), np.split(labels, parts), strict=True)
    files = {file + end: make(x, y, fine) for file, x, y in cut}
    return files | {("test" if fine else "test_batch") + end: make(*cells(name, "test"), fine)}


def write_cifar(folder, name, binary=False):
    """A directory of batches."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in cifar_files(name, binary).items():
        (folder / file).write_bytes(content)


def write_tar(path, files, folder="inside"):
    """An archive with ``files`` in a folder, and something else beside them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for file, content in {"readme.html": b"<p>", **files}.items():
            member = tarfile.TarInfo(f"{folder}/{file}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_svhn(folder, splits=("train", "test", "extra"), **changes):
    """The MATLAB files; ``changes`` replace X or y."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in splits:
        images, labels = cells("svhn", split)
        content = {"X": images.transpose(2, 3, 1, 0), "y": np.where(labels == 0, 10, labels)[:, None].astype(np.uint8)}
        savemat(folder / f"{split}_32x32.mat", content | changes, do_compression=True)


def assert_is(data, name, splits=("train", "test")):
    """``data`` has exactly the images and labels of ``cells``."""
    assert data.name == name
    assert data.classes == SOURCES[name].classes
    for split in splits:
        images, labels = cells(name, split)
        ours = getattr(data, split)
        assert (ours.images.dtype, ours.labels.dtype) == (torch.uint8, torch.int64)
        assert torch.equal(ours.images, torch.from_numpy(images))
        assert torch.equal(ours.labels, torch.from_numpy(labels))


def write_picture(path, size=(40, 30), mode="RGB", seed=0, **options):
    """Write a smooth image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).convert(mode).save(path, **options)


def write_folder(root, counts, seed=0):
    """``{"train/cat": 3}``: three images there."""
    for place, count in counts.items():
        for number in range(count):
            write_picture(root / place / f"{number:02}.png", seed=[seed, number, *place.encode()])
    return root


def pack_tar(files):
    """The bytes of a tar file that is not compressed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def write_photos(root, each=10):
    """Small JPEGs of three classes, ``each`` of a class and split; as ImageNet has them, a grey one, a CMYK one, and a
    PNG with alpha that is called .JPEG are among them. Returns the path of one that is cut short.
    """
    for split, label in ((split, label) for split in ("train", "val") for label in range(3)):
        for number in range(each):
            path = root / split / f"n{label:02}" / f"{split}_{number:02}.JPEG"
            mode = {1: "L", 2: "CMYK", 3: "RGBA"}.get(number if label == 0 else 0, "RGB")
            size = [(60, 45), (45, 60), (50, 50)][number % 3]
            write_picture(path, size, mode, [label, number, len(split)], format="PNG" if mode == "RGBA" else "JPEG")
    broken = root / "train" / "n01" / "train_05.JPEG"
    broken.write_bytes(broken.read_bytes()[:-200])
    return broken


IMAGENET_IDS = {1: "n02", 2: "n00", 3: "n01"}  # the devkit's numbers of classes are not in order of their names


def write_devkit(path, ids, truth):
    """``meta.mat`` and the validation images' labels, as the devkit has them; one synset has children."""
    kind = [(name, object) for name in ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children")]
    rows = [(number, name, f"words of {name}", "", 0, np.empty(0)) for number, name in ids.items()]
    rows.append((len(ids) + 1, "n99", "all of them", "", len(ids), np.array(list(ids))))
    buffer = io.BytesIO()
    savemat(buffer, {"synsets": np.array(rows, kind)[:, None]}, do_compression=True)
    labels = "".join(f"{number}\n" for number in truth).encode()
    files = {"data/meta.mat": buffer.getvalue(), "data/ILSVRC2012_validation_ground_truth.txt": labels}
    write_tar(path, files, "ILSVRC2012_devkit_t12")


def write_imagenet(root, photos):
    """The official tar files of the photos in class folders; returns the label of each validation image, in order."""
    root.mkdir(parents=True, exist_ok=True)
    classes = sorted(path.name for path in (photos / "train").iterdir())
    inner = {
        f"{name}.tar": pack_tar({path.name: path.read_bytes() for path in sorted((photos / "train" / name).iterdir())})
        for name in reversed(classes)
    }
    (root / "ILSVRC2012_img_train.tar").write_bytes(pack_tar(inner))
    val = sorted((photos / "val").rglob("*.JPEG"), key=lambda path: (path.name, path.parent.name))  # classes mixed
    files = {f"ILSVRC2012_val_{number:08}.JPEG": path.read_bytes() for number, path in enumerate(val, 1)}
    (root / "ILSVRC2012_img_val.tar").write_bytes(pack_tar(files))
    numbers = {name: number for number, name in IMAGENET_IDS.items()}
    write_devkit(root / "ILSVRC2012_devkit_t12.tar.gz", IMAGENET_IDS, [numbers[path.parent.name] for path in val])
    return [classes.index(path.parent.name) for path in val]
