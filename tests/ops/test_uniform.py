import torch

from learnpool.ops.uniform import draw_seed, draw_uniform


def draw(seed, channels=4, size=(50, 50)):
    return draw_uniform(torch.tensor(seed), channels, size, torch.float64)


def chi_square(counts):
    expected = counts.sum() / counts.numel()
    return ((counts - expected) ** 2 / expected).sum().item()


def test_numbers_are_uniform():
    """Chi-square with 255 degrees of freedom is below 330.5 in 999 of 1,000 fair samples."""
    u = draw([1, 2, 3, 2**62])
    assert 0 <= u.min() < 1e-3
    assert 0.999 < u.max() < 1
    assert chi_square(torch.histc(u, 256, 0, 1)) < 330.5
    for image in u:
        for plane in image:
            assert chi_square(torch.histc(plane, 16, 0, 1)) < 45  # 15 degrees of freedom, 1 of 10,000


def test_neighbours_channels_images_and_seeds_are_independent():
    """Pairs fill a grid of 16 x 16 evenly; and correlations are within 5 standard errors of none."""
    u = draw([1, 2], 8, (100, 100))
    pairs = {
        "columns": (u[..., :-1], u[..., 1:]),
        "rows": (u[..., :-1, :], u[..., 1:, :]),
        "channels": (u[:, :-1], u[:, 1:]),
        "images": (u[0], u[1]),
        "low bits of the seed": (draw([4], 8, (100, 100)), draw([5], 8, (100, 100))),
        "high bits of the seed": (draw([4 + 2**40], 8, (100, 100)), draw([4 + 2**41], 8, (100, 100))),
    }
    for name, (a, b) in pairs.items():
        a, b = a.flatten(), b.flatten()
        cells = torch.bincount((a * 16).long() * 16 + (b * 16).long(), minlength=256).double()
        assert chi_square(cells) < 350, name
        assert torch.corrcoef(torch.stack([a, b]))[0, 1].abs() < 5 / len(a) ** 0.5, name


def test_numbers_belong_to_their_place():
    u = draw([7, 8], 5, (6, 9))
    assert torch.equal(draw([8], 3, (6, 9))[0], u[1, :3])  # whatever else is drawn
    assert torch.equal(draw([7, 8], 5, (54,)).reshape(u.shape), u)
    assert torch.equal(draw_uniform(torch.tensor([7, 8]), 5, (6, 9), torch.float32).double(), u)


def test_torchs_generator_decides():
    torch.manual_seed(1)
    first = draw_seed(3, torch.device("cpu"))
    torch.manual_seed(1)
    assert torch.equal(draw_seed(3, torch.device("cpu")), first)
    assert len({*first.tolist(), *draw_seed(3, torch.device("cpu")).tolist()}) == 6
