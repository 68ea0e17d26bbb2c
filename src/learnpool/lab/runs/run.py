"""A run: everything that decides a result, as one frozen value.

Equal runs have equal ids and so share a directory. What does not decide a result (directories, threads, processes, the
machine) is no part of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ...conversion.swap import KINDS
from ...formatting import is_utf8
from ...names import parse
from ...nets.dsn import STRIDED
from ...parsing import suggest
from ..data.crops import Crop

OWN_NETS = ("dsn", "resnet9", "fast", "alexnet", "googlenet", "googlenet-bn")
SUPERVISED_NETS = ("dsn", "googlenet", "googlenet-bn")  # have classifiers on the way, for training

LATER_FIELDS = (  # newer than the first ids, which must not change
    "milestones", "resize", "min_area", "accumulate", "norm", "smoothing", "alternate", "norm_rate",
    "replace",
)  # fmt: skip

Positive = Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]


class RunError(ValueError):
    """A run that cannot be made as asked; the message says why in one line."""


class Run(BaseModel):
    """Everything that decides a result. Equal runs share a directory."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    data: str = Field("digits", description="a data set by name, or a folder of images")
    pool: str = Field("max", description="pools by name, or conv for convolutions of stride 2")
    seed: int = Field(0, ge=0, lt=2**63, description="of the weights, the order, dropout and the validation split")

    net: str = Field("dsn", description=f"the network: {', '.join(OWN_NETS)}, or package.module:function")
    replace: str = Field(
        "max", description="kinds of places that get the pools, as in learnpool.convert: strided,global"
    )
    width: Positive = Field(1.0, description="our networks: multiple of the paper's channels")
    extra_convs: int = Field(0, ge=0, le=1000, description="dsn: convolutions after the sixth")
    norm: Literal["none", "batch"] = Field(
        "none", description="dsn: normalisation behind all convolutions but the last"
    )
    dropout: Share = Field(0.5, description="dsn: after each pool; alexnet, googlenet: before the last layers")
    head_steps: int = Field(
        0, ge=0, le=10**15, description="dsn, googlenet: steps with deep supervision, up to the end of the epoch"
    )
    init: Literal["dsn", "kaiming"] = Field(
        "dsn", description="dsn, alexnet, googlenet: the authors' start values, or Kaiming's"
    )
    start: Literal["paper", "neutral", "spread", "tournament"] = Field("paper", description="start values of the pools")

    prepare: str = Field("mean", description="none, mean, gcn, gcn-zca or gcn-lcn, fitted on the training images")
    pad: int = Field(0, ge=0, le=10**6, description="augmentation: crop from an image padded by this")
    mirror: bool = Field(
        False, description="augmentation: mirror every second image; a folder's are cropped at random too"
    )
    alternate: bool = Field(False, description="mirror: every image in turn as it is and mirrored, epoch by epoch")
    image_size: int = Field(128, ge=8, le=10**5, description="a folder's images: cropped to this height and width")
    resize: int | None = Field(
        None,
        ge=8,
        le=10**5,
        description="a folder's images: shorter side before the crop; 8/7 of image_size if not given",
    )
    min_area: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="augmentation: a folder's images: random crops have this part of the area or more"
    )
    skip_broken: bool = Field(False, description="a folder's images: leave out those that do not decode")
    train_size: int | None = Field(None, gt=0, description="only so many training images, balanced over classes")
    validation: int | None = Field(None, gt=0, description="images held out; 5,000 or a tenth if not given")

    loss: Literal["hinge", "softmax"] = Field("softmax", description="of the output: squared hinge or cross-entropy")
    smoothing: Share = Field(0.0, description="softmax: part of each label that goes to all classes alike")
    epochs: int = Field(1, gt=0, le=10**9, description="times every training image is seen")
    batch: int = Field(100, gt=0, le=10**9, description="images in a step, over all processes")
    accumulate: int = Field(
        1, gt=0, le=10**6, description="parts of a batch that go through the network one by one, for large batches"
    )
    schedule: Literal["plateau", "onecycle", "step"] = Field("onecycle", description="how the rate changes")
    rate: tuple[Positive, ...] = Field((0.1,), min_length=1, description="onecycle: its peak; otherwise one by one")
    milestones: tuple[Share, ...] = Field((), description="step: parts of all steps after which the next rate begins")
    patience: int = Field(10, gt=0, le=10**9, description="plateau: epochs without a lower validation error")
    warmup: Share = Field(0.2, description="onecycle: the part of all steps that climbs to the peak")
    momentum: Share = Field(0.9, description="of stochastic gradient descent")
    nesterov: bool = Field(False, description="Nesterov's momentum")
    decay: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)] = Field(
        5e-4, description="of weights, not of biases"
    )
    factors: Literal["dsn", "caffe", "plain"] = Field(
        "plain", description="rates by kind of parameter as in DSN, twice as high for biases as Caffe's, or all equal"
    )
    norm_rate: Positive = Field(1.0, description="multiple of the rate for the biases of batch normalisations")
    pool_rate: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)] = Field(
        1.0, description="the pools' own multiple of the rate; 0 leaves them as they start"
    )
    pool_decay: bool = Field(False, description="decay the pools' parameters too")

    precision: Literal["float32", "bfloat16"] = Field("float32", description="bfloat16 is autocast")
    channels_last: bool = Field(False, description="memory layout of images and weights")
    compile: bool = Field(False, description="torch.compile the network")

    @field_validator("pool")
    @classmethod
    def _check_pool(cls, pool: str) -> str:
        return standardize_pool(pool)

    @field_validator("replace")
    @classmethod
    def _check_replace(cls, replace: str) -> str:
        kinds = replace.split(",")
        if not {*kinds} <= {*KINDS}:
            raise ValueError(f"wanted some of {','.join(KINDS)}, got {replace!r}")
        return ",".join(kind for kind in KINDS if kind in kinds)

    @field_validator("data")
    @classmethod
    def _check_data(cls, data: str) -> str:
        if not data:
            raise ValueError("wanted the name of a data set or the path of a folder of images, got ''")
        if not is_utf8(data):
            raise ValueError(f"wanted a path in UTF-8, which a run's files are written in, got {data!r}")
        return os.path.normpath(data)

    @model_validator(mode="after")
    def _check_combination(self) -> Run:
        if self.net not in OWN_NETS and not re.fullmatch(r"[\w.]+:\w+", self.net):
            known = f"{', '.join(OWN_NETS)}, timm:NAME, torchvision:NAME"
            raise ValueError(f"net: wanted {known} or package.module:function, got {self.net!r}")
        if self.factors == "dsn" and self.net != "dsn":
            raise ValueError(f"net: {self.net} has not DSN's factors")
        if self.head_steps and self.net not in SUPERVISED_NETS:
            raise ValueError(f"net: {self.net} has no heads for head_steps")
        if self.norm != "none" and self.net != "dsn":
            raise ValueError(f"norm: {self.net} has its own normalisation or none")
        if self.smoothing and self.loss != "softmax":
            raise ValueError(f"smoothing: wanted the softmax loss, got {self.loss}")
        if self.alternate and not self.mirror:
            raise ValueError("alternate: wanted mirror too")
        if self.norm_rate != 1 and self.factors == "dsn":
            raise ValueError("norm_rate: wanted plain or caffe factors, got dsn")
        if self.resize is not None and self.resize < self.image_size:
            raise ValueError(f"resize: wanted at least image_size, {self.image_size}, got {self.resize}")
        if self.schedule == "onecycle" and len(self.rate) > 1:
            raise ValueError(f"rate: onecycle has one peak, got {len(self.rate)} rates")
        if self.schedule == "step" and len(self.milestones) != len(self.rate) - 1:
            expected, actual = len(self.rate) - 1, len(self.milestones)
            raise ValueError(f"milestones: wanted {expected} between {len(self.rate)} rates, got {actual}")
        if list(self.milestones) != sorted(self.milestones):
            raise ValueError(f"milestones: wanted them in order, got {self.milestones}")
        if self.milestones and self.schedule != "step":
            raise ValueError(f"milestones: {self.schedule} has none")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov: wanted a momentum above 0")
        return self

    @property
    def memory_format(self) -> torch.memory_format:
        """The memory layout of images and weights."""
        return torch.channels_last if self.channels_last else torch.contiguous_format

    @property
    def crop(self) -> Crop:
        """How a folder's images are cropped."""
        return Crop(self.image_size, self.resize, self.min_area)

    @property
    def id(self) -> str:
        """A name to read and ten digits of the hash of all fields; a later field at its default is left out."""
        fields, usual = self.model_dump(mode="json"), Run.model_fields
        later = {name for name in LATER_FIELDS if getattr(self, name) == usual[name].default}
        text = json.dumps({name: value for name, value in fields.items() if name not in later}, sort_keys=True)
        name = f"{os.path.basename(self.data)}-{self.pool}-{self.seed}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        return f"{make_file_name(name)[:60]}-{digest}"


def make_file_name(name: str) -> str:
    """A name without anything a file's name should not have."""
    return re.sub(r"[^A-Za-z0-9+.-]+", "_", name)


def standardize_pool(pool: str) -> str:
    """The one spelling of pools' names that runs have."""
    return pool if pool == STRIDED else str(parse(pool))


def make_run(values: dict[str, Any]) -> Run:
    """The run of these fields; RunError says in one line what is wrong with the first wrong one."""
    try:
        return Run(**values)
    except ValidationError as error:
        raise RunError(_format_error(error)) from None


def parse_run(text: str) -> Run:
    """The run a ``run.json`` describes."""
    try:
        return Run.model_validate_json(text)
    except ValidationError as error:
        raise RunError(_format_error(error)) from None


def _format_error(error: ValidationError) -> str:
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        field = str(first["loc"][0])
        return (
            f"run: unknown field {field!r}{suggest(field, [*Run.model_fields])}; known: {', '.join(Run.model_fields)}"
        )
    where = ".".join(map(str, first["loc"]))
    actual = "" if first["type"] == "value_error" else f", got {first['input']!r}"
    names_it = not where or message.startswith(f"{where} ")  # as a pool's own errors do
    return ("run: " if names_it else f"run: {where}: ") + message[:1].lower() + message[1:] + actual
