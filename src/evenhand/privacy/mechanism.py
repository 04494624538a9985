"""Gaussian noise on a client's updates: its change of the weights, Δw, and of the multipliers, Δλ.

A client calls ``protect(delta_weights, delta_multipliers, rng)`` on each update before sending it. Three mechanisms:

- :class:`GaussianNoise` is that of FairFedAvgALM's experiments (Section 5, "Gaussian mechanism for LDP"): noise with a
  given σ, without clipping. One record may then move the update by any amount, so no ε can be stated.
- :class:`ClippedGaussian` clips both updates first, which bounds their sensitivity for any model, loss, number of local
  steps and data. :mod:`evenhand.privacy.accounting` states an ε for it.
- :class:`SharedGaussian` is the same with a share of the noise from each client, for runs in which the server sees only
  sums.

The noise must be secret: a server that knows or guesses the seed of ``rng`` can subtract the noise. Simulations may use
a fixed seed; in a deployment each client takes its own entropy, ``numpy.random.default_rng()``. Two different updates
must never have the same noise, because their difference would be unprotected. A client that resumes from a checkpoint
may repeat an update only bit for bit.

Noise is drawn and added in double precision, as if it were a real number. The rounding of such noise can itself leak
information (Mironov, "On significance of the least significant bits for differential privacy", 2012). The stated ε does
not cover this.
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

# Send the weights' update in single precision, for half the bytes; any floating-point type is accepted and returned.
Single: TypeAlias = npt.NDArray[np.float32]

# Pairwise sums in double precision have a relative error of about 1e-14 for any number of weights. With this margin
# the true norm of the clipped update is below the bound, not only the computed one.
_ROOM = 1e-12


@dataclass(frozen=True)
class GaussianNoise:
    """Return Δw + N(0, σ_w²) and Δλ + N(0, σ_λ²) without clipping: FairFedAvgALM Algorithm 1 as published. Proves no ε.

    Parameters
    ----------
    weight_noise
        σ_w. The paper tries 0.1, 0.01, 0.001 and 0.0001, and finds that above 0.001 training may diverge.
    multiplier_noise
        σ_λ; by default σ_w, as in the paper.
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
        """Return both updates with noise, in the given precision; the given arrays are not changed.

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
    """Clip updates to a bounded norm, then add Gaussian noise in proportion to their sensitivity.

    The guarantee is for *replacing*: a client's whole data set, hence any one record in it, is exchanged for any other
    of as many rows. An update of norm at most S can then move by 2S, its sensitivity, and the noise is
    ``noise_multiplier`` x 2S. (For *adding or removing* a client the sensitivity would be S; but the server knows which
    clients take part, so that is not what needs hiding.)

    Parameters
    ----------
    clip
        S_w: upper bound of ‖Δw‖₂.
    dual_clip
        S_λ: upper bound of ‖Δλ‖₂. None for solvers without multipliers, such as FedAvg; an update with multipliers is
        then refused.
    noise_multiplier
        Standard deviation of the noise on Δw over its sensitivity 2 S_w. 0 clips only.
    dual_noise_multiplier
        The same for Δλ and 2 S_λ; by default ``noise_multiplier``.
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
                raise InputError("dual_noise_multiplier is given without dual_clip: give both or neither")

    @property
    def part(self) -> float:
        """The client's share of a noise with standard deviation one."""
        return 1.0

    @property
    def noise_multipliers(self) -> tuple[float, ...]:
        """Ratio of noise to sensitivity of each release of a round: of Δw, then of Δλ if it is sent."""
        if self.dual_clip is None:
            return (self.noise_multiplier,)
        dual = self.noise_multiplier if self.dual_noise_multiplier is None else self.dual_noise_multiplier
        return self.noise_multiplier, dual

    def protect(
        self, delta_weights: Single, delta_multipliers: Array, rng: np.random.Generator
    ) -> tuple[Single, Array]:
        """Return both updates clipped and with noise, in the given precision; the given arrays are not changed.

        Noise is drawn for the weights first, then for the multipliers. An update that is not finite counts as zero: an
        error would reveal that training diverged, and no noise covers when a run stops.

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
    """Add a share of the noise at each client, for ``protection="masked"``, where the server sees only sums.

    Each client clips as with :class:`ClippedGaussian` and adds noise scaled by 1/√shares. A sum over `shares` or more
    clients then has at least the full noise. Replacing one client's data changes the sum as much as that client's
    update. All clients have equal weight, however many rows they have. Masks are never removed from a sum over fewer
    clients.

    Parameters
    ----------
    shares
        Minimum number of clients in every sum that keep their noise secret. Clients that collude with the server do not
        count.
    """

    shares: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_whole(self.shares) and self.shares >= 2):
            raise InputError(f"shares is {self.shares!r}: give a whole number of at least 2, or use ClippedGaussian")

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
    """Return the vector scaled to a Euclidean norm of at most ``bound``; shorter vectors are unchanged."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0:
        return values
    # Divide by the largest entry first, so that squares neither overflow nor vanish.
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
            f"{bad} numbers in the update of the {what} are NaN or infinite, so it is not sent: use smaller steps or "
            "less noise"
        )
    return update.astype(np.float64)


def _check(name: str, value: float, *, above_zero: bool = False) -> None:
    if not isfinite(value) or value < 0 or (above_zero and value == 0):
        raise InputError(f"{name} is {value}: give a finite number {'above 0' if above_zero else 'of at least 0'}")
