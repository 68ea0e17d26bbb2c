"""Crops: where they lie, ten of them, and of random size."""

import numpy as np
import pytest
import torch
from PIL import Image

from data_files import write_folder
from learnpool.lab.data import Crop, iter_batches, load
from learnpool.lab.data.crops import CENTER, TEN_VIEWS


def number_pixels(width, height):
    """An image whose pixels tell their place: red is the column, green the row."""
    rows, columns = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([columns, rows, np.zeros_like(rows)], -1).astype(np.uint8))


def test_ten_views_of_a_hand_made_example():
    """A 12×8 image at its own scale: crops of 6 pixels in the corners and the middle of its central 8×8 square."""
    views = Crop(6, resize=8).take_views(number_pixels(12, 8), 10)
    assert views.shape == (10, 3, 6, 6)
    corners = [(2, 0), (4, 0), (2, 2), (4, 2), (3, 1)]  # left, top
    for view, (left, top) in zip(views[:5], corners, strict=True):
        assert view[0, 0].tolist() == list(range(left, left + 6))
        assert view[1, :, 0].tolist() == list(range(top, top + 6))
    assert torch.equal(views[5:], views[:5].flip(-1))


@pytest.mark.parametrize("size", [(12, 8), (8, 12), (13, 8), (37, 20), (20, 20)])
def test_the_only_view_is_the_fifth_of_ten_and_the_crop_in_the_middle(size):
    crop, image = Crop(6, resize=8), number_pixels(*size)
    ten = crop.take_views(image, 10)
    assert torch.equal(crop.take_views(image, 1)[0], ten[4])
    assert torch.equal(crop.take(image, CENTER), ten[4])


def test_there_are_ten_different_views():
    assert len({*TEN_VIEWS}) == 10


def test_the_shorter_side_is_eight_sevenths_of_the_crop_or_as_given():
    assert Crop(224).short == 256
    assert Crop(227, resize=256).short == 256
    image = number_pixels(100, 50)
    left, top, right, bottom = Crop(40, resize=50).find_box((1.0, 1.0, 0.0), image.size)
    assert (left, top, right, bottom) == (60, 10, 100, 50)


def test_a_crop_of_random_size_has_its_area_and_aspect_and_lies_inside():
    crop, image = Crop(8, min_area=0.25), (120, 90)
    for place in torch.rand(200, crop.draws, generator=torch.Generator().manual_seed(0)).tolist():
        left, top, right, bottom = crop.find_box(tuple(place), image)
        assert 0 <= left < right <= image[0] + 1e-9
        assert 0 <= top < bottom <= image[1] + 1e-9
        across, down = right - left, bottom - top
        assert across * down >= 0.25 * 120 * 90 - 1e-6 or down > 89.999 or across > 119.999
        assert 3 / 4 - 1e-9 <= across / down <= 4 / 3 + 1e-9 or down > 89.999 or across > 119.999
    smallest = crop.find_box((0, 0, 0, 0, 0.5), image)  # a quarter of the area, a square
    assert smallest == pytest.approx((0, 0, *[(0.25 * 120 * 90) ** 0.5] * 2))
    assert crop.find_box((0, 0, 0, 1, 0.5), image)[3] == 90  # as far as the image reaches
    assert crop.find_box(CENTER, image) == Crop(8).find_box(CENTER, image)  # evaluation is as ever


def test_a_small_part_of_a_jpeg_is_decoded_with_enough_pixels():
    crop = Crop(32, min_area=0.01)
    for place in torch.rand(50, crop.draws, generator=torch.Generator().manual_seed(0)).tolist():
        left, top, right, bottom = crop.find_box(tuple(place), (800, 600))
        scale = crop.find_needed_size(tuple(place), (800, 600)) / 600
        assert scale * min(right - left, bottom - top) >= 32 - 1e-6
    assert crop.find_needed_size(CENTER, (800, 600)) == crop.short


def test_batches_of_views_and_of_random_sizes(tmp_path):
    files = load(str(write_folder(tmp_path, {"train/cat": 4, "train/dog": 3, "val/cat": 1, "val/dog": 1}))).train
    ((ten, labels),) = iter_batches(files, [torch.arange(7)], Crop(16), views=10)
    ((one, _),) = iter_batches(files, [torch.arange(7)], Crop(16))
    assert ten.shape == (7, 10, 3, 16, 16)
    assert torch.equal(ten[:, 4], one)
    assert labels.tolist() == [0, 0, 0, 0, 1, 1, 1]
    drawn = [
        next(iter_batches(files, [torch.arange(7)], Crop(16, min_area=area), torch.Generator().manual_seed(0)))[0]
        for area in (0.1, 0.1, None)
    ]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
