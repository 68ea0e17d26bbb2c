"""The data sets as data: their files, where they are published, their checksums and what has to be in them.

The MD5 sums are the ones torchvision publishes; the CIFAR archives' stand on the sets' own page as well. A size bounds
what is taken from a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TORONTO = "https://www.cs.toronto.edu/~kriz/"
STANFORD = "http://ufldl.stanford.edu/housenumbers/"


@dataclass(frozen=True)
class Remote:
    """A file to fetch: the same bytes from any of its mirrors."""

    file: str
    size: int
    md5: str
    mirrors: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """A data set: shape of an image, names of the classes, images of each class in each split where known."""

    name: str
    kind: str  # how its files are read
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    counts: Mapping[str, int]
    balance: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    folders: tuple[str, ...] = ()  # where to look inside the data directory, besides itself
    remotes: tuple[Remote, ...] = ()
    md5: Mapping[str, str] = field(default_factory=dict)  # of files that are not fetched by themselves

    def checksum(self, file: str) -> str | None:
        """The published MD5 of a file of this set, by the file's name."""
        return ({remote.file: remote.md5 for remote in self.remotes} | dict(self.md5)).get(file)


TEN = tuple("0123456789")
TEN_THINGS = "airplane automobile bird cat deer dog frog horse ship truck"
GARMENTS = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
HUNDRED_THINGS = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard
lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark
shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone
television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""


def _idx(mirrors: tuple[str, ...], *sums: tuple[int, str]) -> tuple[Remote, ...]:
    names = (f"{split}-{what}-ubyte.gz" for split in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))
    return tuple(Remote(file, size, md5, mirrors) for file, (size, md5) in zip(names, sums, strict=True))


SOURCES = {
    source.name: source
    for source in (
        Source(
            "mnist",
            "idx",
            (1, 28, 28),
            TEN,
            {"train": 60_000, "test": 10_000},
            {
                "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
                "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
            },
            ("mnist", "MNIST", "MNIST/raw", "mnist/raw"),
            _idx(
                ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
                (9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                (28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
                (1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
                (4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
            ),
        ),
        Source(
            "fashion-mnist",
            "idx",
            (1, 28, 28),
            GARMENTS,
            {"train": 60_000, "test": 10_000},
            {"train": (6000,) * 10, "test": (1000,) * 10},
            ("fashion-mnist", "fashion_mnist", "fashionmnist", "FashionMNIST", "FashionMNIST/raw", "fashion-mnist/raw"),
            _idx(
                ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
                (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                (29_515, "25c81989df183df01b3e8a0aad5dffbe"),
                (4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
                (5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
            ),
        ),
        Source(
            "cifar10",
            "cifar",
            (3, 32, 32),
            tuple(TEN_THINGS.split()),
            {"train": 50_000, "test": 10_000},
            {"train": (5000,) * 10, "test": (1000,) * 10},
            ("cifar10", "cifar-10", "CIFAR10"),
            (Remote("cifar-10-python.tar.gz", 170_498_071, "c58f30108f718f92721af3b95e74349a", (TORONTO,)),),
            {
                "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
                "data_batch_1": "c99cafc152244af753f735de768cd75f",
                "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                "data_batch_4": "634d18415352ddfa80567beed471001a",
                "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                "test_batch": "40351d587109b95175f43aff81a1287e",
            },
        ),
        Source(
            "cifar100",
            "cifar",
            (3, 32, 32),
            tuple(HUNDRED_THINGS.split()),
            {"train": 50_000, "test": 10_000},
            {"train": (500,) * 100, "test": (100,) * 100},
            ("cifar100", "cifar-100", "CIFAR100"),
            (Remote("cifar-100-python.tar.gz", 169_001_437, "eb9058c3a382ffc7106e4002c42a8d85", (TORONTO,)),),
            {
                "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
                "train": "16019d7e3df5f24257cddd939b257f8d",
                "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
            },
        ),
        Source(
            "svhn",
            "svhn",
            (3, 32, 32),
            TEN,
            {"train": 73_257, "test": 26_032, "extra": 531_131},
            {},
            ("svhn", "SVHN"),
            (
                Remote("train_32x32.mat", 182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373", (STANFORD,)),
                Remote("test_32x32.mat", 64_275_384, "eb5a983be6a315427106f1b164d9cef3", (STANFORD,)),
                Remote("extra_32x32.mat", 1_329_278_602, "a93ce644f1a588dc4d68dda5feec44a7", (STANFORD,)),
            ),
        ),
    )
}
