"""Compute the ε of a client's protected updates; refuse to state one that cannot be proved.

The guarantee is local: it holds for each client separately, against the server and anyone else who reads the messages.
Neighbouring data sets differ in all of a client's rows (hence in any record), but not in the number of rows. The number
of rows, and the rounds in which a client takes part, are public. Everything the server computes from the updates,
including the next model, is post-processing and costs no further ε.

No amplification by client sampling is claimed. Sampling lowers ε only against an adversary that does not know which
clients were drawn, but the server draws them and receives each update. So ε depends on the number of rounds in which a
client took part, not on the share of clients in a round.

Each round releases Δw and, if the solver has multipliers, Δλ. Two Gaussian releases with noise multipliers z_w and z_λ
together equal one with 1/z² = 1/z_w² + 1/z_λ², and rounds compose adaptively. dp-accounting (extra ``privacy``)
computes the composition by Rényi divergences (RDP) and by privacy loss distributions (PLD). Both are upper bounds; the
smaller one is stated, and both are shown.

Noise at every step of training (:mod:`evenhand.privacy.record_level`) is accounted for in the same way, with
amplification by Poisson sampling: only the client knows which rows were in a step. That guarantee is about one record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
from math import isfinite, sqrt
from operator import index
from threading import Lock
from typing import Any, Literal, ParamSpec, TypeAlias

from evenhand.errors import InputError, MissingExtraError
from evenhand.privacy.mechanism import ClippedGaussian, GaussianNoise, SharedGaussian
from evenhand.privacy.record_level import RecordGaussian

# Grid step of the privacy loss distribution, relative to the standard deviation of the loss. ε then has about seven
# correct digits (compared with the closed form) and takes some hundredths of a second.
_GRID = 1e-3
_PRECISION = 1e-6
# The same for sampled steps with noise of at least the sensitivity: finer grids change only the fourth digit.
_RECORD_GRID = 1e-3
_SIMULATED = (
    "Simulated: the noise came from a seed that others may know, and with it they can subtract the noise. "
    "With noise from the client's own entropy, the same updates would have "
)


Epsilons: TypeAlias = tuple[tuple[str, float], ...]
"""ε by each accountant."""
Given = ParamSpec("Given")


class NoGuaranteeError(InputError):
    """No ε can be proved for the messages; the error says why, and what to change."""


@dataclass(frozen=True)
class PrivacyStatement:
    """Privacy guarantee for one client's updates.

    Attributes
    ----------
    epsilon, delta
        Any event that has probability p with one data set has at most exp(ε) p + δ with any other of as many rows.
    rounds
        Number of protected updates that were sent. A lost update counts; one that is sent again unchanged does not.
    noise_multipliers
        Ratio of noise to sensitivity of each release of a round: of Δw, and of Δλ if it is sent.
    by_accountant
        ε of each accountant, ``RDP`` and ``PLD``.
    secret_noise
        Whether only the client could reproduce the noise. Otherwise ε describes the same run with secret noise.
    shares
        Minimum number of clients that contribute noise to each sum; 1 if each update has the full noise.
    about
        ``"client"``: all data of a client may be exchanged. ``"record"``: one record may be blanked.
    """

    epsilon: float
    delta: float
    rounds: int
    noise_multipliers: tuple[float, ...]
    by_accountant: Mapping[str, float]
    secret_noise: bool
    shares: int = 1
    about: Literal["client", "record"] = "client"

    @property
    def words(self) -> str:
        """Return the statement as text, with its assumptions."""
        if self.rounds == 0:
            return "The client sent no updates, so they reveal nothing about its data (ε = 0)."
        releases = "Δw" if len(self.noise_multipliers) == 1 else "Δw and Δλ"
        accountants = ", ".join(f"{name} {epsilon:.4g}" for name, epsilon in self.by_accountant.items())
        simulated = "" if self.secret_noise else _SIMULATED
        what = (
            "for the exchange of all of the client's data, and so of any one record, for other data of as many rows"
            if self.about == "client"
            else "for one record of the client being blanked: who has several records there is not covered as a person"
        )
        return (
            f"{simulated}ε = {self.epsilon:.4g} at δ = {self.delta:g} for {self.rounds} updates ({releases}; by "
            f"accountant: {accountants}). {self._against} {what}. It covers these updates only: other runs on the same "
            "data, and what the client says elsewhere, add to it."
        )

    @property
    def _against(self) -> str:
        if self.shares == 1:
            return (
                "This is local differential privacy: it holds against the server and anyone else who reads the updates,"
            )
        return (
            "Each client adds a share of the noise under masks: it holds against the server and anyone who "
            "sees the sums, "
            f"as long as {self.shares} clients or more in every sum keep their noise to themselves,"
        )

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "words": self.words}


def privacy_statement(
    mechanism: object,
    rounds: int | None,
    delta: float,
    *,
    unprotected: Sequence[str] = (),
    secret_noise: bool = False,
) -> PrivacyStatement:
    """Return the ε of one client at ``delta``, or raise an error if none can be stated.

    Parameters
    ----------
    mechanism
        Mechanism that protected the updates. Only a :class:`~evenhand.privacy.mechanism.ClippedGaussian` with noise or
        a :class:`~evenhand.privacy.record_level.RecordGaussian` (for records) gives an ε.
    rounds
        Number of updates that the client sent: the rounds it took part in.
    delta
        δ. Choose it well below one over the number of people that the guarantee covers.
    unprotected
        Names of other data-dependent values that the client sent, such as BatchNorm's running means, local metrics or
        group counts. The number of rows need not be listed: neighbouring data sets have the same number.
    secret_noise
        Whether each client drew its noise from its own entropy, rather than from a seed in the job that the server
        knows as well. By default the statement says that it describes a simulation.

    Raises
    ------
    NoGuaranteeError
        If there is no noise, updates are not clipped, the number of rounds is unknown, or other data-dependent values
        were sent.
    InputError
        If ``delta`` is not between 0 and 1 or ``rounds`` is negative.
    MissingExtraError
        If dp-accounting is not installed.
    """
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}: give a number between 0 and 1, such as 1e-5")
    multipliers = _proven_multipliers(mechanism, unprotected)
    if rounds is None:
        raise NoGuaranteeError(
            "the number of updates that the client sent is unknown, and each one adds to ε: count them"
        )
    rounds = _count("rounds", rounds, least=0)
    if isinstance(mechanism, RecordGaussian):
        by_accountant = dict(_of_records(mechanism, rounds, delta))
    else:
        by_accountant = dict(_epsilons(_of_a_round(multipliers), rounds, delta))
    return PrivacyStatement(
        min(by_accountant.values()),
        delta,
        rounds,
        multipliers,
        by_accountant,
        secret_noise,
        mechanism.shares if isinstance(mechanism, SharedGaussian) else 1,
        "record" if isinstance(mechanism, RecordGaussian) else "client",
    )


def noise_for(epsilon: float, delta: float, rounds: int, *, releases: int = 2) -> float:
    """Return the smallest noise multiplier, to six digits, with which ``rounds`` updates stay within ``epsilon``.

    Use it as ``noise_multiplier`` of :class:`~evenhand.privacy.mechanism.ClippedGaussian`, for both Δw and Δλ.

    Parameters
    ----------
    releases
        Number of releases in a round: 2 for Δw and Δλ, 1 for Δw alone (``dual_clip=None``).

    Raises
    ------
    InputError
        If ``epsilon`` is not positive and finite, ``delta`` not between 0 and 1, or a count below 1.
    MissingExtraError
        If dp-accounting is not installed.
    """
    if not (isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon is {epsilon}: give a finite number above 0")
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}: give a number between 0 and 1, such as 1e-5")
    rounds, releases = _count("rounds", rounds, least=1), _count("releases", releases, least=1)

    def spent(multiplier: float) -> float:
        return min(epsilon for _, epsilon in _epsilons(_of_a_round((multiplier,) * releases), rounds, delta))

    low = high = 1.0
    while spent(high) > epsilon:
        low, high = high, 2 * high
    while spent(low) <= epsilon:
        low, high = low / 2, low
    # The upper end always stays within ε.
    while high / low > 1 + _PRECISION:
        middle = sqrt(low * high)
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return high


def _count(name: str, value: int, *, least: int) -> int:
    try:
        count = index(value)
    except TypeError as error:
        raise InputError(f"{name} is {value!r}: give a whole number") from error
    if count < least:
        raise InputError(f"{name} is {count}: give at least {least}")
    return count


def _proven_multipliers(mechanism: object, unprotected: Sequence[str]) -> tuple[float, ...]:
    """Return the noise multiplier of each release; refuse unbounded sensitivity and unprotected values."""
    if mechanism is None:
        raise NoGuaranteeError("the updates were sent without noise: protect them with ClippedGaussian")
    if isinstance(mechanism, GaussianNoise):
        raise NoGuaranteeError(
            "the updates were not clipped, so one record may move them by any amount and noise of any fixed size "
            "proves no ε: use ClippedGaussian"
        )
    # Refuse other subclasses: what they protect is unknown.
    trusted = type(mechanism) in (ClippedGaussian, SharedGaussian, RecordGaussian)
    if not (trusted and isinstance(mechanism, ClippedGaussian | RecordGaussian)):
        raise NoGuaranteeError(f"no ε is known for {mechanism!r}: use ClippedGaussian")
    if min(mechanism.noise_multipliers) == 0:
        raise NoGuaranteeError("updates were clipped but have no noise: give a noise multiplier above 0")
    if unprotected:
        raise NoGuaranteeError(
            f"sent without protection: {', '.join(unprotected)}; no ε covers these, so leave them out or protect them "
            "as part of the update (for a network, replace BatchNorm by GroupNorm, which keeps no running means)"
        )
    return mechanism.noise_multipliers


def _of_a_round(multipliers: tuple[float, ...]) -> float:
    """Return the noise multiplier that equals all releases of a round together."""
    return 1 / sqrt(sum(multiplier**-2 for multiplier in multipliers))


def _once(compute: Callable[Given, Epsilons]) -> Callable[Given, Epsilons]:
    """Compute each ε once: participants in one process, and attempts of one job, search for the same noise."""
    known: dict[object, Epsilons] = {}
    lock = Lock()

    @wraps(compute)
    def found(*args: Given.args, **kwargs: Given.kwargs) -> Epsilons:
        accounting_package()
        key = args, tuple(kwargs.items())
        with lock:
            if key not in known:
                known[key] = compute(*args, **kwargs)
            return known[key]

    return found


@_once
def _epsilons(multiplier: float, rounds: int, delta: float) -> Epsilons:
    """Return ε of this many Gaussian releases by each accountant.

    The accountants' neighbouring relation only affects amplification by sampling, which is not used here: the
    multiplier already accounts for the sensitivity of replacing.
    """
    accounting = accounting_package()
    if rounds == 0:
        return ("RDP", 0.0), ("PLD", 0.0)
    event = accounting.SelfComposedDpEvent(accounting.GaussianDpEvent(multiplier), rounds)
    grid = _GRID * sqrt(rounds) / multiplier
    accountants = {
        "RDP": accounting.rdp.RdpAccountant(),
        "PLD": accounting.pld.PLDAccountant(value_discretization_interval=grid),
    }
    return _composed(accountants, event, delta)


@_once
def _of_records(mechanism: RecordGaussian, rounds: int, delta: float) -> Epsilons:
    """Return ε of DP-SGD by each accountant; neighbouring data sets differ in one blanked record."""
    accounting = accounting_package()
    if rounds == 0:
        return ("RDP", 0.0), ("PLD", 0.0)
    event, relation = mechanism.event(accounting, rounds), accounting.NeighboringRelation.REPLACE_SPECIAL
    grid = _RECORD_GRID * max(1.0, mechanism.noise_multiplier**-2)
    accountants = {
        "RDP": accounting.rdp.RdpAccountant(neighboring_relation=relation),
        "PLD": accounting.pld.PLDAccountant(neighboring_relation=relation, value_discretization_interval=grid),
    }
    with _orders_left_out_in_silence():
        return _composed(accountants, event, delta)


def _composed(accountants: dict[str, Any], event: Any, delta: float) -> Epsilons:
    return tuple((name, float(each.compose(event).get_epsilon(delta))) for name, each in accountants.items())


@contextmanager
def _orders_left_out_in_silence() -> Iterator[None]:
    """Silence the RDP accountant's warning about each order it leaves out.

    Leaving out orders can only increase ε, and a search for the noise would print very many warnings.
    """
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def accounting_package() -> Any:
    """Return the package; raise an error that says how to install it."""
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError as error:
        raise MissingExtraError("Stating an ε", "privacy") from error
    return dp_accounting
