"""Gaussian noise on what a client sends: its change of the weights, Δw, and of the multipliers, Δλ.

A client calls ``protect(delta_weights, delta_multipliers, rng)`` on each update before it is sent. Three mechanisms:

- :class:`GaussianNoise` is that of FairFedAvgALM's experiments (Section 5, "Gaussian mechanism for LDP"): noise of a
  given σ, no clipping. One record may then move the update by any amount, so no ε can be stated for it.
- :class:`ClippedGaussian` bounds both updates first, which makes their sensitivity known whatever the model, the loss,
  the number of local steps and the data are. Only for this one does :mod:`evenhand.privacy.accounting` state an ε.
- :class:`SharedGaussian` is the same with a share of the noise from each client, where the server sees sums only.

The noise must be unknown to whoever reads the update: an ``rng`` whose seed the server knows, or can guess, gives it
the noise to subtract. Simulations may use a written-down seed; a deployment seeds each client from its own entropy,
``numpy.random.default_rng()``. And two different updates must never be sent with the same noise: their difference
would be bare. A client that goes on from a checkpoint may repeat an update only bit for bit.

Noise is drawn and added in double precision, as if it were a real number. The rounding of such noise can itself give
something away (Mironov, "On significance of the least significant bits for differential privacy", 2012); that is not
covered by the ε stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.errors import DivergenceError, InputError
from evenhand.printing import is_whole

# Of the weights' update, for half the bytes; any floating-point type is taken and given back.
Single: TypeAlias = npt.NDArray[np.float32]

# Norms are summed pairwise in double precision, good to some 1e-14 for any number of weights: with this much room the
# clipped update's true norm is below the bound, not only the computed one.
_ROOM = 1e-12


@dataclass(frozen=True)
class GaussianNoise:
    """Δw + N(0, σ_w²) and Δλ + N(0, σ_λ²), without clipping: FairFedAvgALM Algorithm 1 as it was run. Proves no ε.

    Parameters
    ----------
    weight_noise
        σ_w. The paper tries 0.1, 0.01, 0.001 and 0.0001, and finds that above 0.001 training may diverge.
    multiplier_noise
        σ_λ; as σ_w by default, as in the paper.
    """

    weight_noise: float
    multiplier_noise: float | None = None

    def __post_init__(self) -> None:
        _check("weight_noise", self.weight_noise)
        if self.multiplier_noise is not None:
            _check("multiplier_noise", self.multiplier_noise)

    def protect(
        self, delta_weights: Single, delta_multipliers: Array, rng: np.random.Generator
    ) -> tuple[Single, Array]:
        """Both updates with noise, in the given precision; the arrays handed over are left as they are.

        Raises
        ------
        DivergenceError
            If an update is not finite.
        """
        dual_noise = self.weight_noise if self.multiplier_noise is None else self.multiplier_noise
        weights, multipliers = _read(delta_weights, "weights"), _read(delta_multipliers, "multipliers")
        return (
            _with_noise(weights, self.weight_noise, rng).astype(delta_weights.dtype),
            _with_noise(multipliers, dual_noise, rng).astype(delta_multipliers.dtype),
        )


@dataclass(frozen=True)
class ClippedGaussian:
    """Updates shrunk to a bounded norm, then Gaussian noise in proportion to what the bound lets the data change.

    The guarantee is for *replacing*: a client's whole data set, hence any one record in it, is exchanged for any other
    of as many rows. An update of norm at most S can then move by 2S, its sensitivity, and the noise is
    ``noise_multiplier`` x 2S. (Were a client added or removed instead, an update would be compared with none and move
    by S; but a server sees who takes part, so that is not what needs hiding.)

    Parameters
    ----------
    clip
        S_w: ‖Δw‖₂ is at most this.
    dual_clip
        S_λ: ‖Δλ‖₂ is at most this. None if the solver sends no multipliers, as FedAvg: then there are none to
        protect, none to account for, and any that come are refused.
    noise_multiplier
        Standard deviation of the noise on Δw over its sensitivity 2 S_w. 0 clips only.
    dual_noise_multiplier
        The same for Δλ and 2 S_λ; as ``noise_multiplier`` by default.
    """

    clip: float
    dual_clip: float | None
    noise_multiplier: float
    dual_noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        _check("clip", self.clip, above_zero=True)
        _check("noise_multiplier", self.noise_multiplier)
        if self.dual_clip is not None:
            _check("dual_clip", self.dual_clip, above_zero=True)
        if self.dual_noise_multiplier is not None:
            _check("dual_noise_multiplier", self.dual_noise_multiplier)
            if self.dual_clip is None:
                raise InputError("dual_noise_multiplier is given without dual_clip: give both, or none of them")

    @property
    def part(self) -> float:
        """How much of the noise is this client's, of a standard deviation of one."""
        return 1.0

    @property
    def noise_multipliers(self) -> tuple[float, ...]:
        """Of each release of a round, noise over sensitivity: of Δw, then of Δλ if it is sent."""
        if self.dual_clip is None:
            return (self.noise_multiplier,)
        dual = self.noise_multiplier if self.dual_noise_multiplier is None else self.dual_noise_multiplier
        return self.noise_multiplier, dual

    def protect(
        self, delta_weights: Single, delta_multipliers: Array, rng: np.random.Generator
    ) -> tuple[Single, Array]:
        """Both updates clipped and with noise, in the given precision; the arrays handed over are left as they are.

        Noise is drawn for the weights first, then for the multipliers. An update that is not finite counts as zero: an
        error would tell that training diverged, and no noise covers when a run stops.

        Raises
        ------
        InputError
            If there are multipliers, but no ``dual_clip`` for them.
        """
        weights = _read(_finite(delta_weights), "weights")
        multipliers = _read(_finite(delta_multipliers), "multipliers")
        if multipliers.size and self.dual_clip is None:
            raise InputError(
                f"the update holds {multipliers.size} multipliers, but dual_clip is None: set it to the largest norm "
                "their change may have"
            )
        noise = self.noise_multiplier * 2 * self.clip * self.part
        protected = _with_noise(clipped(weights, self.clip), noise, rng).astype(delta_weights.dtype)
        if self.dual_clip is None:
            return protected, delta_multipliers.copy()
        dual_noise = self.noise_multipliers[1] * 2 * self.dual_clip * self.part
        dual = _with_noise(clipped(multipliers, self.dual_clip), dual_noise, rng)
        return protected, dual.astype(delta_multipliers.dtype)


@dataclass(frozen=True)
class SharedGaussian(ClippedGaussian):
    """A share of the noise from each client: for ``protection="masked"``, where the server sees nothing but sums.

    Each client clips as with :class:`ClippedGaussian` and adds noise of 1/√shares of its size. A sum over as many
    clients or more then holds at least the whole noise, and what replacing one client's data can change in it is what
    it can change in that client's update. Clients count alike, however many rows they have; their masks are opened in
    no sum over fewer.

    Parameters
    ----------
    shares
        How many clients at least are in every sum and keep their noise to themselves. Those who tell the server theirs
        do not count.
    """

    shares: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_whole(self.shares) and self.shares >= 2):
            raise InputError(f"shares is {self.shares!r}: give a whole number of at least 2; alone, ClippedGaussian")

    @property
    def part(self) -> float:
        return float(self.shares) ** -0.5


def described(mechanism: Any) -> dict[str, Any]:
    """Return a mechanism's name and all its numbers as plain values, for the terms of a run; empty for None."""
    if mechanism is None:
        return {}
    numbers = asdict(mechanism) if is_dataclass(mechanism) and not isinstance(mechanism, type) else {}
    return {"mechanism": type(mechanism).__name__, **numbers}


def noise_terms(update_noise: Any) -> dict[str, Any]:
    """Return the `noise` of a run's terms, from one mechanism for all clients or a mapping by client."""
    if isinstance(update_noise, Mapping):
        return {"by_client": {name: described(one) for name, one in update_noise.items()}} if update_noise else {}
    return described(update_noise)


def clipped(values: Array, bound: float) -> Array:
    """The same direction with a Euclidean norm of at most ``bound``; left as it is if already shorter."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0:
        return values
    # Divided by the largest first, the squares can neither overflow nor vanish.
    norm = largest * float(np.sqrt(np.square(values.ravel() / largest).sum()))
    limit = bound * (1 - _ROOM)
    return values if norm <= limit else values / norm * limit


def _with_noise(values: Array, deviation: float, rng: np.random.Generator) -> Array:
    return values + deviation * rng.standard_normal(values.shape)


def _finite(update: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.zeros_like(update) if _is_update(update) and not np.isfinite(update).all() else update


def _is_update(update: Any) -> bool:
    return isinstance(update, np.ndarray) and np.issubdtype(update.dtype, np.floating)


def _read(update: npt.NDArray[Any], what: str) -> Array:
    if not _is_update(update):
        raise InputError(f"the update of the {what} is not an array of floating-point numbers")
    if bad := int(np.count_nonzero(~np.isfinite(update))):
        raise DivergenceError(
            f"{bad} numbers in the update of the {what} are NaN or infinite, so it is not sent: take smaller steps or "
            "less noise"
        )
    return update.astype(np.float64)


def _check(name: str, value: float, *, above_zero: bool = False) -> None:
    if not isfinite(value) or value < 0 or (above_zero and value == 0):
        raise InputError(f"{name} is {value}: give a finite number {'above 0' if above_zero else 'of at least 0'}")
