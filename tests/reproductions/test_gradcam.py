"""Grad-CAM by hand where it has a closed form; models left as they were; the picture; refusals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from torch import nn
from torch.nn import functional

from evenhand.errors import InputError, MissingExtraError
from evenhand_reproductions.fairfedavgalm.gradcam import draw_heats, gradcam_figure
from evenhand_reproductions.fairfedavgalm.heatmaps import decisions, gradcam


def pooled(outputs: int = 3, seed: int = 0) -> nn.Sequential:
    """Convolutions, activation, mean over the map, linear: Grad-CAM is then the map weighed by the last layer."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 5, 3, padding=1, stride=2),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(5, outputs),
    )


class Residual(nn.Module):
    """A block whose 1 x 1 side branch runs last and whose activation is used twice, as in many ResNets."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.block = ResidualBlock(self.relu)
        self.head = nn.Linear(4, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.relu(self.stem(images))).mean(dim=(2, 3)))


class ResidualBlock(nn.Module):
    def __init__(self, relu: nn.Module) -> None:
        super().__init__()
        self.side = nn.Conv2d(4, 4, 1)
        self.convolution = nn.Conv2d(4, 4, 3, padding=1)
        self.relu = relu

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        straight = self.convolution(images)
        return self.relu(straight + self.side(images))


IMAGES = torch.rand(4, 2, 8, 8, generator=torch.Generator().manual_seed(2))
LABELS = [0, 1, 2, 1]


def scaled(maps: torch.Tensor) -> Any:
    """As Grad-CAM ends: positive part, at the images' size, from 0 to 1."""
    large = functional.interpolate(functional.relu(maps)[:, None], IMAGES.shape[2:], mode="bilinear")[:, 0]
    return (large / large.amax(dim=(1, 2), keepdim=True).clamp(min=1e-30)).detach().numpy()


def test_averaged_maps_by_hand() -> None:
    model = pooled().eval()
    activations = model[:5](IMAGES)
    expected = scaled(torch.einsum("ik,ikhw->ihw", model[8].weight[LABELS], activations))
    np.testing.assert_allclose(gradcam(model, IMAGES, LABELS), expected, atol=1e-5)
    assert not np.allclose(expected, scaled(torch.einsum("k,ikhw->ihw", model[8].weight[0], activations)))


def test_one_score_is_for_the_first_and_against_the_other_label() -> None:
    model = pooled(outputs=1).eval()
    weights = model[8].weight[0] * torch.tensor([[-1.0], [1.0], [-1.0], [1.0]])
    expected = scaled(torch.einsum("ik,ikhw->ihw", weights, model[:5](IMAGES)))
    np.testing.assert_allclose(gradcam(model, IMAGES, [0, 1, 0, 1]), expected, atol=1e-5)
    # A model may also return one number a row without a second axis.
    flat = nn.Sequential(model, nn.Flatten(0))
    np.testing.assert_allclose(gradcam(flat, IMAGES, [0, 1, 0, 1]), expected, atol=1e-5)
    np.testing.assert_array_equal(decisions(flat, IMAGES), (model(IMAGES)[:, 0] > 0).numpy())


def test_looks_where_the_evidence_is() -> None:
    """A model that counts bright pixels of a channel finds them where they were put."""
    model = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].weight[[0, 1], [0, 1], 1, 1] = 1.0
    image = torch.zeros(1, 2, 9, 9)
    image[0, 0, 2, 6], image[0, 1, 7, 1] = 1.0, 1.0
    both = gradcam(model, image.repeat(2, 1, 1, 1), [0, 1])
    assert [np.argwhere(heat == 1).tolist() for heat in both] == [[[2, 6]], [[7, 1]]]
    # Nothing speaks for the label: a map of zeros, not of NaN.
    assert not gradcam(model, torch.zeros(1, 2, 9, 9), [0]).any()


def test_the_default_is_the_last_map_after_its_activation() -> None:
    model = pooled()
    np.testing.assert_array_equal(gradcam(model, IMAGES, LABELS), gradcam(model, IMAGES, LABELS, layer="4"))
    assert not np.allclose(gradcam(model, IMAGES, LABELS), gradcam(model, IMAGES, LABELS, layer="0"))
    network = Residual()
    np.testing.assert_array_equal(gradcam(network, IMAGES, LABELS), gradcam(network, IMAGES, LABELS, layer="block"))
    only_mixing = nn.Sequential(nn.Conv2d(2, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    np.testing.assert_array_equal(gradcam(only_mixing, IMAGES, LABELS), gradcam(only_mixing, IMAGES, LABELS, layer="0"))


@pytest.mark.parametrize("make", [pooled, Residual])
def test_models_are_left_as_they_were(make: Any, tmp_path: Path) -> None:
    model = make()
    model.train()
    # One part of the model is in another mode, one is not trained.
    list(model.children())[1].eval()
    next(model.parameters()).requires_grad_(False)
    modes, states = [m.training for m in model.modules()], {k: v.clone() for k, v in model.state_dict().items()}
    images = IMAGES.clone()
    with torch.no_grad():
        first = gradcam(model, images, LABELS)
        gradcam_figure({"model": model}, images, LABELS, out=tmp_path / "a.png")
    np.testing.assert_array_equal(gradcam(model, images, LABELS), first)
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(value, states[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [parameter.requires_grad for parameter in model.parameters()].count(False) == 1
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules())
    assert torch.equal(images, IMAGES)
    assert not images.requires_grad
    # A refusal restores as well.
    with pytest.raises(InputError):
        gradcam(model, images, [0, 1, 2, 7])
    assert [m.training for m in model.modules()] == modes


def test_a_picture_that_is_white_at_its_edge_has_an_outline(tmp_path: Path) -> None:
    white = [np.ones((8, 8))]
    draw_heats(white, np.array([0]), {}, {}, out=tmp_path / "white.png", called=str)
    drawn = np.asarray(imread(tmp_path / "white.png"))[..., :3].max(axis=2)
    # The colour bar, below, is the other thing on the page that has a frame.
    upper = drawn[: len(drawn) // 2]
    assert ((upper < 0.95).mean(axis=0) > 0.3).sum() >= 2, "a line at the left and at the right"


def test_the_picture(tmp_path: Path) -> None:
    models = {"FedAvg": pooled(seed=0), "FairFedAvgALM": pooled(seed=3)}
    shown = np.zeros((4, 8, 8, 3), dtype=np.uint8)
    shown[..., 1] = 200
    out = tmp_path / "made" / "here.png"
    gradcam_figure(models, IMAGES, LABELS, out=out, label_names=["ash", "oak", "elm"], pictures=shown)
    picture = imread(out)
    height, width, _ = picture.shape
    assert height > width  # four rows, three columns
    # The given pictures are in the first column, in their own colour; the heat is to the right.
    green = np.all(np.abs(picture[..., :3] - [0, 200 / 255, 0]) < 0.01, axis=2)
    assert green[:, : width // 3].mean() > 0.5
    assert green[:, width // 3 + 20 :].sum() == 0
    red = picture[..., 0] - picture[..., 2] > 0.3
    assert red[: int(0.85 * height), width // 3 + 20 :].any()
    again = tmp_path / "again.png"
    gradcam_figure(models, IMAGES, LABELS, out=again, label_names=["ash", "oak", "elm"], pictures=shown / 255)
    np.testing.assert_array_equal(imread(again), picture)
    # Layers by model, grey pictures from the images themselves, one row.
    gradcam_figure(models, IMAGES[:1], [1], out=str(again), layer={"FedAvg": "4", "FairFedAvgALM": "0"})
    assert imread(again).shape[0] < height


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": {}}, "no models"),
        ({"images": IMAGES[0]}, r"images have the shape \(2, 8, 8\)"),
        ({"images": IMAGES[:0]}, "images have the shape"),
        ({"images": (255 * IMAGES).to(torch.uint8)}, "not finite floating-point"),
        ({"images": IMAGES * float("nan")}, "not finite floating-point"),
        ({"labels": [0, 1]}, "4 images and 2 labels"),
        ({"labels": [0.5, 1, 1, 1]}, "not a list of whole numbers"),
        ({"labels": np.array([], dtype=int)}, "not a list of whole numbers"),
        ({"labels": [0, 1, 2, 3]}, r"labels \[3\] are none of the model's 3"),
        ({"labels": [0, 1, 2, -1]}, r"labels \[-1\]"),
        ({"label_names": ["ash", "oak"]}, "label 2 has no name"),
        ({"layer": "layer4"}, "no layer 'layer4': its parts are 0, 1"),
        ({"layer": "8"}, "layer '8' is no picture"),
        ({"layer": {"other": "4"}}, "do not name the same models: model, other"),
        ({"models": {"model": nn.Sequential(nn.Flatten(), nn.Linear(128, 3))}}, "no two-dimensional convolution"),
        ({"pictures": np.zeros((4, 9, 9))}, r"pictures have the shape \(4, 9, 9\): \(4, 8, 8\)"),
        ({"pictures": IMAGES[:, 0].numpy() - 1}, "below 0 or above 1"),
    ],
)
def test_refuses_before_anything_is_written(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"models": {"model": pooled()}, "images": IMAGES, "labels": LABELS} | changes
    with pytest.raises(InputError, match=message):
        gradcam_figure(**given, out=tmp_path / "folder" / "a.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["torch", "captum"])
def test_says_what_to_install(package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = pooled()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"evenhand-reproductions\[torch\]"):
        gradcam_figure({"model": model}, IMAGES, LABELS, out=tmp_path / "a.png")
