"""A pickle builds images and labels, and nothing else; a broken one is one sentence that names the file."""

import io
import pickle

import numpy as np
import pytest

from data_files import array_pickle, batch_pickle, cifar_files, integers, string, write_cifar, write_tar
from learnpool.lab.data import DataError, load
from learnpool.lab.data.cifar_batches import BatchUnpickler

LARGE_LABELS = b"](K\x01K\x01K\x01K\x01K\x01K\x01K\x01" + b"\x8a\x09" + (1 << 70).to_bytes(9, "little") + b"e"


IMAGE_ROWS, TEN_LABELS = np.zeros((8, 3072), np.uint8), np.arange(8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "wanted a pickled batch of CIFAR, got something else"),
        (batch_pickle(IMAGE_ROWS, TEN_LABELS)[:-9000], "wanted a pickled batch of CIFAR, got something else"),
        (pickle.dumps([1, 2]), "wanted a dict of data and labels, got list"),
        (pickle.dumps({}), "wanted data of 8×3072 bytes, got NoneType"),
        (pickle.dumps({"data": b"x" * 8 * 3072}), "wanted data of 8×3072 bytes, got bytes"),
        (
            b"\x80\x02}" + string(b"data") + b"cnumpy.core.multiarray\n_reconstruct\n)Rs.",
            "wanted data of 8×3072 bytes, got 0×0",
        ),
        (batch_pickle(IMAGE_ROWS[:7], TEN_LABELS), "wanted data of 8×3072 bytes, got 7×3072"),
        (batch_pickle(IMAGE_ROWS[:, :-1], TEN_LABELS), "wanted data of 8×3072 bytes, got 8×3071"),
        (batch_pickle(IMAGE_ROWS, TEN_LABELS[1:]), "wanted a list of 8 labels, got 7 items"),
        (
            b"\x80\x02}(" + string(b"data") + array_pickle(IMAGE_ROWS) + string(b"labels") + string(b"abc") + b"u.",
            "wanted a list of 8 labels, got bytes",
        ),
        (
            b"\x80\x02}(" + string(b"data") + array_pickle(IMAGE_ROWS) + string(b"labels") + b"](NNNNNNNNeu.",
            "wanted a list of 8 labels, got 8 items",
        ),
        (
            b"\x80\x02}(" + string(b"data") + array_pickle(IMAGE_ROWS) + string(b"labels") + LARGE_LABELS + b"u.",
            "wanted labels 0 to 9, got 1 to 1180591620717411303424",
        ),
    ],
)
@pytest.mark.usefixtures("small_sources")
@pytest.mark.parametrize("tar", [True, False])
def test_a_broken_batch(content, message, tar, tmp_path):
    files = cifar_files("cifar10") | {"data_batch_2": content}
    if tar:
        write_tar(tmp_path / "cifar-10-python.tar.gz", files)
    else:
        write_cifar(tmp_path / "cifar-10-batches-py", "cifar10")
        (tmp_path / "cifar-10-batches-py/data_batch_2").write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        load("cifar10", tmp_path)
    assert ("cifar-10-python.tar.gz: data_batch_2: " if tar else "cifar-10-batches-py/data_batch_2: ") in str(
        error.value
    )


class Attack:
    """Unpickles to a call of whatever is given."""

    def __init__(self, call, *given):
        self.call, self.given = call, given

    def __reduce__(self):
        return self.call, self.given


NDARRAY_CALL = b"cnumpy\nndarray\nK\x02K\x02\x86\x85R."  # numpy.ndarray((2, 2))


@pytest.mark.parametrize(
    "content",
    [
        *(pickle.dumps(Attack(print, "no"), protocol) for protocol in range(6)),
        pickle.dumps(Attack(eval, "1"), 2),
        pickle.dumps(Attack(np.memmap, "file")),
        pickle.dumps(Attack(np.frombuffer, b"")),
        pickle.dumps(np.float64(1)),
        pickle.dumps(np.array([object()], dtype=object), 2),
        b"cos\nsystem\n(S'true'\ntR.",
        b"(S'true'\nios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93.",
        b"cnumpy\nfromfile\n.",
        b"cnumpy.core.multiarray\n_reconstruct.__globals__\n.",
        NDARRAY_CALL,
        array_pickle(IMAGE_ROWS, kind=b"O") + b".",
        array_pickle(IMAGE_ROWS, kind=b"f8") + b".",
        array_pickle(IMAGE_ROWS, module=b"numpy.core.evil") + b".",
        b"\x80\x02\x82\x01.",  # an extension
        b"Pid\n.",  # a persistent object
    ],
)
def test_the_unpickler_builds_nothing_else(content, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception) as error:  # noqa: PT011 (any refusal will do)
        BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
    assert not isinstance(error.value, MemoryError)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_the_unpickler_reads_old_and_new_arrays():
    cells = np.arange(6, dtype=np.uint8).reshape(2, 3)
    columns = array_pickle(cells.T.copy(), order=b"\x88").replace(b"J\x03\0\0\0J\x02\0\0\0", b"J\x02\0\0\0J\x03\0\0\0")
    contents = [array_pickle(cells) + b".", columns + b".", *(pickle.dumps(cells, protocol) for protocol in (3, 4))]
    for content in contents:
        assert np.array_equal(BatchUnpickler(io.BytesIO(content), encoding="bytes").load().cells, cells)
    assert BatchUnpickler(io.BytesIO(b"\x80\x02" + integers([1, 2]) + b".")).load() == [1, 2]
