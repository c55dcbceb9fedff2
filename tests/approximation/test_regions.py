"""Regions on a plane against sampling, arrangements of lines, and the network itself."""

import copy
import math
from collections import Counter

import pytest
import torch
from torch import nn

from tests.approximation.region_models import MODELS, baked
from vademecum.approximation.local_affine import local_affine_map
from vademecum.approximation.patterns import activation_pattern
from vademecum.approximation.regions import (
    Certificate,
    Plane,
    Regions,
    certify_regions,
    count_regions,
    draw_regions,
    input_plane,
    linear_regions,
    plane_through,
)
from vademecum.testing import check_instrument


def random_plane(shape, reach=2.0):
    origin, u, v = torch.randn(3, *shape).unbind()
    return Plane(origin, u, v, (-reach, -reach), (reach, reach))


@pytest.mark.parametrize("name", MODELS)
def test_regions_tile_the_rectangle_one_for_each_pattern(name):
    model, shape = MODELS[name]
    plane = random_plane(shape)
    found = linear_regions(model, plane)
    assert certify_regions(model, found).holds
    assert (name == "affine") == (len(found.maps) == 1)
    if name == "affine":
        return
    grid = torch.cartesian_prod(torch.linspace(-2, 2, 61), torch.linspace(-2, 2, 61)).double()
    mine = activation_pattern(model, plane.at(found.centres))
    seen = activation_pattern(model, plane.at(grid))
    assert len(torch.cat([mine, seen]).unique(dim=0)) == len(mine)  # the grid finds no other


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_maps_are_those_of_the_network(name, dtype):
    model, shape = MODELS[name]
    twin = copy.deepcopy(model).to(dtype)
    plane = random_plane(shape)._replace(low=(-2.0, 0.5), high=(1.0, 2.0))
    found = linear_regions(twin, plane)
    x = found.plane.at(found.centres)
    y = copy.deepcopy(model).double().eval()(x).reshape(len(x), -1)
    ones = torch.ones_like(found.centres[:, :1])
    value = torch.einsum("roc,rc->ro", found.maps, torch.cat([ones, found.centres], 1))
    torch.testing.assert_close(value, y, rtol=1e-9, atol=1e-9)
    matrix, _ = local_affine_map(model, x)
    basis = torch.stack([found.plane.u, found.plane.v]).double().flatten(1)
    torch.testing.assert_close(found.maps[..., 1:], matrix @ basis.T, rtol=1e-9, atol=1e-9)
    across = torch.linalg.qr(basis.T).Q
    norms = (matrix @ across).flatten(1).norm(dim=1)
    torch.testing.assert_close(found.gradient_norms, norms, rtol=1e-9, atol=1e-9)


def test_one_layer_in_the_plane_is_an_arrangement_of_lines():
    model = nn.Sequential(nn.Linear(2, 9), nn.ReLU())
    w, b = (p.detach().double() for p in model.parameters())
    pairs = torch.combinations(torch.arange(9))
    corners = torch.linalg.solve(w[pairs], -b[pairs])
    reach = 2 * float(corners.abs().max())  # all corners of the arrangement are inside
    found = linear_regions(model, input_plane(low=(-reach, -reach), high=(reach, reach)))
    assert len(found.maps) == 1 + 9 + 36 == count_regions(model)
    every = torch.cat([found.corners[i, :n] for i, n in enumerate(found.sizes)])
    gap = (every[:, None] - corners).abs().amax(2).amin(0)
    assert gap.max() < 1e-9 * reach


def test_pooling_after_relu_is_not_cut_where_nothing_wins():
    # Where all entries of a window are zero they tie, and the first one counts.
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Unflatten(1, (1, 4)), nn.MaxPool1d(4))
    plane = input_plane(low=(-9.0, -9.0), high=(9.0, 9.0))
    found = linear_regions(model, plane)
    assert certify_regions(model, found, samples=9).holds


def test_a_tiny_plane_around_a_corner():
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU()).double()
    w, b = (p.detach() for p in model[0].parameters())
    corner = torch.linalg.solve(w[:2], -b[:2])
    for size in (1e-6, 1e-3):
        u, v = (size * torch.eye(2).double()).unbind()
        plane = Plane(corner, u, v)
        found = linear_regions(model, plane)
        assert len(found.maps) >= 4
        assert certify_regions(model, found).holds
        assert found.areas.sum().item() == pytest.approx(4)


def test_memory_does_not_change_the_answer():
    model, shape = MODELS["branches"]
    plane = random_plane(shape, 0.5)
    big, small = linear_regions(model, plane), linear_regions(model, plane, memory=60_000)
    assert len(big.maps) == len(small.maps)
    assert big.areas.sort().values.tolist() == pytest.approx(small.areas.sort().values.tolist())
    with pytest.raises(ValueError, match=r"memory must be >= \d+ bytes, one cell") as error:
        linear_regions(model, plane, memory=100)
    least = int(str(error.value).split()[4])
    assert len(linear_regions(model, plane, memory=least).maps) == len(big.maps)


def test_polygons_are_convex_and_in_order():
    found = linear_regions(MODELS["mlp"][0], random_plane((2,)))
    for corners, n in zip(found.corners, found.sizes, strict=True):
        p = corners[:n]
        side = p.roll(-1, 0) - p
        turn = side[:, 0] * side.roll(-1, 0)[:, 1] - side[:, 1] * side.roll(-1, 0)[:, 0]
        assert (turn > -1e-12).all() or (turn < 1e-12).all()
        assert (corners[n:] == corners[n - 1]).all()


def test_certificates_find_what_is_wrong():
    model, shape = MODELS["mlp"]
    found = linear_regions(model, random_plane(shape))
    lost = found._replace(**{k: getattr(found, k)[1:] for k in ("corners", "sizes", "maps")})
    assert certify_regions(model, lost).area_gap > 0
    assert not certify_regions(model, lost).holds
    other = nn.Sequential(nn.Linear(2, 9), nn.ReLU())
    certificate = certify_regions(other, found)
    assert certificate.patterns < certificate.regions
    plain = linear_regions(nn.Identity(), random_plane(shape))
    assert certify_regions(
        model, Regions(found.plane, plain.corners, plain.sizes, plain.maps)
    ).strays
    assert not Certificate(2, 2, 6, 1, 0.0).holds


def test_plane_through_three_examples():
    points = torch.randn(3, 1, 4, 4)
    plane = plane_through(*points, margin=0.1)
    basis = torch.stack([plane.u, plane.v]).flatten(1)
    torch.testing.assert_close(basis @ basis.T, torch.eye(2))
    st = (points - plane.origin).flatten(1) @ basis.T
    torch.testing.assert_close(plane.at(st), points)
    assert (st > torch.tensor(plane.low)).all()
    assert (st < torch.tensor(plane.high)).all()


@pytest.mark.parametrize(
    ("c", "low", "high"),
    [
        ((-1.0, 1.0), (-2.5, -1.5), (3.5, 2.5)),  # left of a: the box is 3 wide and 1 high
        ((3.0, 7.0), (-3.5, -3.5), (6.5, 10.5)),  # right of b
        ((1.0, 1.0), (-1.0, -1.0), (3.0, 2.0)),  # between them
    ],
)
def test_rectangle_around_three_points(c, low, high):
    a = torch.tensor([1.0, 1.0, 5.0])
    plane = plane_through(a, a + torch.tensor([2.0, 0, 0]), a + torch.tensor([*c, 0]), margin=0.5)
    assert (plane.low, plane.high) == (low, high)
    assert plane.at(torch.tensor([[0.0, 0], [2, 0], c])).tolist() == [
        [1.0, 1.0, 5.0], [3.0, 1.0, 5.0], [1 + c[0], 1 + c[1], 5.0],
    ]  # fmt: skip


def test_rectangles_that_are_no_squares():
    found = linear_regions(nn.ReLU(), input_plane(low=(-1.0, -2.0), high=(4.0, 6.0)), max_regions=4)
    assert sorted(found.areas.tolist()) == pytest.approx([2.0, 6.0, 8.0, 24.0])
    certificate = certify_regions(nn.ReLU(), found, samples=5)
    assert certificate[:4] == (4, 4, 20, 0)
    assert certificate.holds
    assert not certificate._replace(area_gap=-1e-6).holds


def test_laws_of_instruments():
    plane = random_plane((1, 4, 4), 0.3)
    model = MODELS["branches"][0]

    def count(model, data):
        return linear_regions(model, plane)[1:]

    frozen = copy.deepcopy(model).requires_grad_(False)
    check_instrument(count, [model.train(), frozen], torch.zeros(2, 1), outputs=None)


def _area(polygon):
    """By the shoelace formula; the last corner is the first again."""
    x, y = polygon.T
    return abs(sum(x[:-1] * y[1:] - x[1:] * y[:-1])) / 2


@pytest.mark.parametrize("colour", ["class", "gradient", "nothing"])
def test_draw_regions(colour):
    model, _ = MODELS["mlp"]
    plane = input_plane(low=(-2.0, -1.0), high=(2.0, 1.0))
    found = linear_regions(model, plane)
    points = torch.tensor([[0.5, 0.25], [-1.0, 0.0]])
    figure = draw_regions(found, colour=colour, points=points, labels=torch.tensor([0, 2]))
    polygons, dots = figure.axes[0].collections
    closed = [
        torch.tensor(path.codes).eq(int(path.CLOSEPOLY)).sum().item()
        for path in polygons.get_paths()
    ]
    torch.testing.assert_close(torch.tensor(dots.get_offsets()), points.double())
    assert sum(closed) == len(found.maps)
    shade = torch.as_tensor(polygons.get_array())
    if colour == "class":
        winners = copy.deepcopy(model).double()(plane.at(found.centres)).argmax(1)
        assert dict(zip(shade.tolist(), closed, strict=True)) == Counter(winners.tolist())
        for path, winner in zip(polygons.get_paths(), shade.tolist(), strict=True):
            area = sum(float(_area(p)) for p in path.to_polygons())
            assert area == pytest.approx(found.areas[winners == winner].sum().item())
    figure.canvas.draw()
    luminance = torch.tensor([0.2126, 0.7152, 0.0722, 0.0]).double()
    tiles, walls = (torch.tensor(c) for c in (polygons.get_facecolor(), polygons.get_edgecolor()))
    assert (torch.cat([tiles, walls])[:, 3] == 1).all()  # no ground shines through
    assert (tiles @ luminance).min() > (walls @ luminance).max() + 0.15
    assert draw_regions(found, figure.axes[0]) is figure
    assert figure.axes[0].get_xlim() == (-2, 2)


O, U, V = torch.zeros(2), *torch.eye(2).unbind()
NET = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
ERRORS = [
    (NET, Plane(O, U, 2 * U), {}, "plane.u and plane.v must not be parallel"),
    (NET, Plane(O, U, 0 * U), {}, "plane.u and plane.v must not be parallel or zero"),
    (NET, Plane(O, U, V[:1]), {}, r"plane.v must have the shape of plane.origin, \(2,\)"),
    (NET, Plane(O.long(), U, V), {}, "plane.origin must be floating point"),
    (NET, Plane(O, U * math.nan, V), {}, "plane.u must be finite"),
    (NET, Plane(O, U, V, (1.0, 0.0), (1.0, 1.0)), {}, "plane.high of s must be > 1, got 1.0"),
    (NET, Plane(O, U, V, (0.0, -math.inf)), {}, "plane.low of t must be finite, got -inf"),
    (NET, Plane(O, U, V), {"memory": 0}, "memory must be >= 1"),
    (NET, Plane(O, U, V), {"max_regions": 0}, "max_regions must be >= 1, got 0"),
    (nn.ReLU(), Plane(O, U, V), {"max_regions": 3}, "plane must hold at most max_regions = 3;"),
    (nn.Sequential(nn.Linear(2, 2), nn.Sigmoid()), Plane(O, U, V), {}, r"'1' \(Sigmoid\)"),
    (nn.Linear(3, 2), Plane(O, U, V), {}, r"model does not take inputs of shape \(2,\)"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("model", "plane", "options", "message"), ERRORS)
def test_errors(model, plane, options, message):
    with pytest.raises(ValueError, match=message):
        linear_regions(model, plane, **options)


@pytest.mark.usefixtures("unchecked")
def test_other_errors():
    found = linear_regions(NET, Plane(O, U, V))
    with pytest.raises(ValueError, match="must not lie on a line"):
        plane_through(O, U, 3 * U)
    for points in ((O, U, torch.zeros(3)), (O, torch.zeros(3), V), (torch.zeros(3), U, V)):
        with pytest.raises(ValueError, match="b and c must have the shape of a"):
            plane_through(*points)
    with pytest.raises(ValueError, match="margin must be >= 0"):
        plane_through(O, U, V, margin=-1.0)
    with pytest.raises(ValueError, match="samples must be >= 1"):
        certify_regions(NET, found, samples=0)
    with pytest.raises(ValueError, match="colour must be one of"):
        draw_regions(found, colour="red")
    with pytest.raises(ValueError, match="labels must be one for each point"):
        draw_regions(found, labels=torch.zeros(1))
    with pytest.raises(ValueError, match=r"points must be inputs of shape \(2,\)"):
        draw_regions(found, points=torch.zeros(1, 3))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", MODELS)
def test_on_cuda(name):
    model, shape = MODELS[name]
    plane = random_plane(shape)
    here = linear_regions(model, plane)
    there = linear_regions(
        baked(model).cuda(),
        plane._replace(origin=plane.origin.cuda(), u=plane.u.cuda(), v=plane.v.cuda()),
    )
    assert there.maps.device.type == "cuda"
    areas = [r.areas.sort().values.tolist() for r in (here, there)]
    assert areas[1] == pytest.approx(areas[0], abs=1e-9)
