"""Pictures as bytes, wherever they are; models that begin with a file's weights, and fits that are gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from sklearn.base import clone

from evenhand import HorizontalClassifier, LossParity, VerticalClassifier
from evenhand.data.images import as_floats, centre_crop
from evenhand.errors import DataError, EvenhandError, InputError, RunError
from evenhand.models import TorchModule
from evenhand.models.pictures import Pictures
from evenhand.solvers import FairFedAvgALM

RNG = np.random.default_rng(0)
CLASSES = RNG.integers(0, 3, 90)
GROUPS = np.where(RNG.random(90) < 0.5, "a", "b")
CLIENTS = np.array(["x", "y", "z"])[np.arange(90) % 3]
FACES = (RNG.integers(0, 60, (90, 1, 10, 10)) + 60 * CLASSES[:, None, None, None]).astype(np.uint8)


def network() -> Any:
    from torch import nn

    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3))


def small(side: int = 10) -> Any:
    """A module with weights of its own, so that fits are alike."""
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = network()
        module(torch.zeros((1, 1, side, side)))
    return module


def classifier(side: int = 10, **settings: Any) -> HorizontalClassifier:
    known: dict[str, Any] = {"constraint": LossParity(0.1), "max_rounds": 3, "random_state": 0}
    known |= {"solver": FairFedAvgALM(step=0.5, batch_size=8, local_epochs=1)}
    shown = {name: settings.pop(name) for name in ("crop", "device") if name in settings}
    return HorizontalClassifier(model=TorchModule(small(side), **shown), **(known | settings))


def fitted(X: Any = FACES, **settings: Any) -> HorizontalClassifier:
    asked = {name: settings.pop(name) for name in ("start", "checkpoints") if name in settings}
    return classifier(**settings).fit(X, CLASSES, sensitive_features=GROUPS, clients=CLIENTS, **asked)


# -- bytes


def test_bytes_are_numbers_from_zero_to_one_in_memory_and_in_a_file(tmp_path: Path) -> None:
    of_numbers = fitted(as_floats(FACES))
    np.save(tmp_path / "faces.npy", FACES)
    mapped = np.load(tmp_path / "faces.npy", mmap_mode="r")
    for X in (FACES, mapped):
        of_bytes = fitted(X)
        np.testing.assert_array_equal(of_bytes.run_.weights, of_numbers.run_.weights)
        np.testing.assert_array_equal(of_bytes.predict_proba(X), of_numbers.predict_proba(as_floats(FACES)))
        assert of_bytes.history_["objective"].tolist() == of_numbers.history_["objective"].tolist()
    assert of_bytes.score(FACES, CLASSES) > 0.5


def test_crops_are_random_to_train_and_the_middle_to_judge() -> None:
    model = fitted(side=8, crop=8)
    assert model.run_.terms.shape == (1, 8, 8)
    middle = np.ascontiguousarray(centre_crop(FACES, 8))
    np.testing.assert_array_equal(model.predict_proba(FACES), model.predict_proba(middle))
    # The start is judged in the middle; training saw other squares.
    of_middle = fitted(middle, side=8)
    first, last = model.history_["objective"].iloc[[0, -1]]
    assert first == of_middle.history_["objective"].iloc[0]
    assert last != of_middle.history_["objective"].iloc[-1]
    np.testing.assert_array_equal(fitted(side=8, crop=8).run_.weights, model.run_.weights)


def test_pictures_are_read_where_they_are_and_seen_as_numbers() -> None:
    rows = np.array([5, 2, 70])
    shown = Pictures(FACES, rows, crop=6)
    assert (shown.shape, len(shown), shown.ndim) == ((3, 1, 6, 6), 3, 4)
    np.testing.assert_array_equal(shown[:], centre_crop(FACES[rows], 6))
    np.testing.assert_array_equal(np.asarray(shown), as_floats(centre_crop(FACES[rows], 6)))
    np.testing.assert_array_equal(np.concatenate(list(shown.blocks())), FACES[rows])
    np.testing.assert_array_equal(shown.take(np.array([True, False, True]))[:], centre_crop(FACES[[5, 70]], 6))
    drawn = shown.drawn(np.arange(3), np.random.default_rng(0))
    windows = np.lib.stride_tricks.sliding_window_view(FACES[rows], (6, 6), axis=(2, 3)).reshape(3, -1, 6, 6)
    assert all((windows[place] == drawn[place, 0]).all(axis=(1, 2)).any() for place in range(3))


@pytest.mark.parametrize(
    ("X", "settings", "message"),
    [
        (FACES, {"crop": 11}, "a crop of 11 does not fit pictures of 10 × 10"),
        (as_floats(FACES), {"crop": 8}, "holds no pictures of bytes"),
        (FACES, {"device": "cuda:99"}, "device is 'cuda:99', which torch cannot use here"),
        (FACES, {"device": "fridge"}, "device is 'fridge', which torch cannot use here"),
    ],
)
def test_what_cannot_be_is_refused(X: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(EvenhandError, match=message):
        fitted(X, **settings)


def test_perceptrons_are_numpys() -> None:
    torch = pytest.importorskip("torch")
    from evenhand.models.networks import Network

    with pytest.raises(InputError, match="perceptrons are trained by numpy"):
        Network(torch.nn.Sequential(torch.nn.Linear(4, 1)), (4,), None, "cuda")


# -- weights to begin with


def test_weights_of_a_run_and_of_a_module_are_begun_with(tmp_path: Path) -> None:
    module = small()
    with pytest.importorskip("torch").no_grad():
        for part in module.parameters():
            part.mul_(1.5)
    save_file({name: one.numpy() for name, one in module.state_dict().items()}, tmp_path / "module.safetensors")
    begun = fitted(start=tmp_path / "module.safetensors")
    other = classifier()
    other.model = module
    other.fit(FACES, CLASSES, sensitive_features=GROUPS, clients=CLIENTS)
    np.testing.assert_array_equal(begun.run_.weights, other.run_.weights)
    flat = {"weights": begun.run_.weights, "statistics": begun.run_.statistics}
    save_file(flat, tmp_path / "run.safetensors")
    onward = fitted(start=tmp_path / "run.safetensors")
    assert onward.history_["objective"].iloc[0] == pytest.approx(begun.history_["objective"].iloc[-1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is not a safetensors file with weights to start from"),
        (b"no such thing", "is not a safetensors file with weights to start from"),
        ({"weights": np.zeros(5, dtype=np.float32)}, "the start has 5 weights"),
        ({"0.weight": np.zeros((2, 1, 3, 3), dtype=np.float32)}, "'0.bias' is not among its weights"),
        ({"strange": np.zeros(1)}, "0.bias"),
    ],
)
def test_weights_that_are_none_are_refused(content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "start.safetensors"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        save_file(content, path)
    with pytest.raises((InputError, DataError), match=message):
        fitted(start=path)


def test_a_warm_start_begins_where_the_last_fit_ended() -> None:
    model = classifier(warm_start=True)
    given: dict[str, Any] = {"sensitive_features": GROUPS, "clients": CLIENTS}
    last = model.fit(FACES, CLASSES, **given).history_["objective"].iloc[-1]
    assert model.fit(FACES, CLASSES, **given).history_["objective"].iloc[0] == pytest.approx(last)
    two = HorizontalClassifier(warm_start=True, random_state=0).fit(FACES.reshape(90, -1), CLASSES > 0, **given)
    weights = two.run_.weights
    np.testing.assert_allclose(two.fit(FACES.reshape(90, -1), CLASSES > 0, **given).run_.weights, weights, atol=0.05)


# -- interrupted fits


class Interrupted(Exception):
    """Somebody pulls the plug."""


def test_a_fit_that_was_interrupted_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evenhand.training import run

    whole = fitted(max_rounds=6)
    place = tmp_path / "checkpoints"
    written = run.Recorder._checkpoint

    def third(self: Any, *parts: Any) -> None:
        written(self, *parts)
        if len(self.history) >= 4:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(run.Recorder, "_checkpoint", third)
        recorder = run.Recorder
        patch.setattr(run, "Recorder", lambda folder, _, told: recorder(folder, 0.0, told))
        with pytest.raises(Interrupted):
            fitted(max_rounds=6, checkpoints=place)
    assert place.is_dir()
    with pytest.raises(RunError, match="other data"):
        fitted(FACES[::-1].copy(), max_rounds=6, checkpoints=place)
    again = fitted(max_rounds=6, checkpoints=place)
    np.testing.assert_array_equal(again.run_.weights, whole.run_.weights)
    assert len(again.history_) == len(whole.history_)
    assert not place.exists()


def test_vertical_fits_keep_checkpoints_too(tmp_path: Path) -> None:
    tables = [RNG.normal(size=(60, 2)), RNG.normal(size=(60, 3))]
    plain = VerticalClassifier(random_state=0).fit(tables, np.arange(60) % 2)
    kept = clone(plain).fit(tables, np.arange(60) % 2, checkpoints=tmp_path / "kept")
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(kept.coef_, plain.coef_)
