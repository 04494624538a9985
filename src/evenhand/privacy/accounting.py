"""What ε a client's protected updates amount to: stated where it can be proved, refused where it cannot.

The guarantee is local: it holds against the server and anyone else who reads the messages, for each client on its own.
It is for replacing the client's whole data set, hence any record of it, by another of as many rows; the number of rows
and in which rounds a client takes part are taken to be known. What the server makes of the updates, the next model
included, is post-processing and spends nothing more.

No amplification by sampling is claimed. Drawing a random part of the clients for each round would lower ε only against
somebody who cannot tell who was drawn; the server draws them and sees each update arrive. So what counts is the number
of rounds a client took part in, not the share of clients in a round.

Each round releases Δw and, if the solver has them, Δλ. Two Gaussian releases with noise multipliers z_w and z_λ are
together one Gaussian release with 1/z² = 1/z_w² + 1/z_λ², and rounds compose adaptively. The composition is taken by
dp-accounting (extra ``privacy``), by Rényi divergences (RDP) and by privacy loss distributions (PLD). Both give upper
bounds; the smaller is stated and both are shown.

Noise at every step of training (:mod:`evenhand.privacy.record_level`) is accounted for in the same way, with what
Poisson sampling adds to it: nobody but the client knows which rows were in a step. Its guarantee is about one record.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import isfinite, sqrt
from operator import index
from typing import Any, Literal

from evenhand.errors import InputError, MissingExtraError
from evenhand.privacy.mechanism import ClippedGaussian, GaussianNoise, SharedGaussian
from evenhand.privacy.record_level import RecordGaussian

# Of the privacy loss distribution, as a part of the loss's own standard deviation: ε is then good to about seven digits
# (against the closed form), whatever its size, and takes some hundredths of a second.
_GRID = 1e-3
_PRECISION = 1e-6
# The same where steps are sampled, for noise of at least the sensitivity: finer grids change the fourth digit only.
_RECORD_GRID = 1e-3
_SIMULATED = (
    "Simulated: the noise came from a seed that others may know, and whoever knows it can take the noise off. "
    "With noise from the client's own entropy, the same updates would have "
)


class NoGuaranteeError(InputError):
    """No ε can be proved for what was sent; the message says why, and what to change."""


@dataclass(frozen=True)
class PrivacyStatement:
    """What one client's updates reveal at most about its data.

    Attributes
    ----------
    epsilon, delta
        Whatever is done with the updates, an outcome that has probability p with one data set has at most
        exp(ε) p + δ with any other of as many rows.
    rounds
        Updates that were protected and sent. One that was lost counts; the same one sent again does not.
    noise_multipliers
        Noise over sensitivity of each release of a round: of Δw, and of Δλ if it is sent.
    by_accountant
        The ε of each accountant, ``RDP`` and ``PLD``.
    secret_noise
        Whether nobody but the client could repeat the noise. If not, ε is what the same run would spend if it were so.
    shares
        How many clients' noise every sum holds at least; 1 where each update has the whole noise itself.
    about
        ``"client"``: all of its data may be exchanged. ``"record"``: one record may be blanked.
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
        """The statement for people, with what it rests on."""
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
            "Each client adds a share of the noise under masks: it holds against the server and whoever sees the sums, "
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
    """The ε of one client at ``delta``, or a refusal.

    Parameters
    ----------
    mechanism
        What protected the updates; only a :class:`~evenhand.privacy.mechanism.ClippedGaussian` with noise gives an ε,
        or a :class:`~evenhand.privacy.record_level.RecordGaussian`, one about records.
    rounds
        Updates the client sent: the rounds it took part in.
    delta
        δ. Choose it well below one over the number of people the guarantee is for.
    unprotected
        Names of other things the client sent that depend on its records, such as BatchNorm's running means, local
        metrics or group counts. The number of rows need not be named: neighbours have the same.
    secret_noise
        Whether each client drew its noise from entropy of its own, rather than from a seed in the job that the server
        knows as well. By default the statement says that it is that of a simulation.

    Raises
    ------
    NoGuaranteeError
        If noise is not added, or added to updates of any size, if the rounds are not known, or if anything else that
        depends on the data was sent.
    InputError
        If ``delta`` is not between 0 and 1 or ``rounds`` is negative.
    MissingExtraError
        If dp-accounting is not installed.
    """
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}: give a number between 0 and 1, such as 1e-5")
    multipliers = _proven_multipliers(mechanism, unprotected)
    if rounds is None:
        raise NoGuaranteeError("how many updates the client sent is not known: each one adds to ε, so count them")
    rounds = _count("rounds", rounds, least=0)
    if isinstance(mechanism, RecordGaussian):
        by_accountant = _of_records(mechanism, rounds, delta)
    else:
        by_accountant = _epsilons(_of_a_round(multipliers), rounds, delta)
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


def client_statements(
    mechanism: object,
    rounds: Mapping[str, int | None],
    delta: float,
    *,
    unprotected: Sequence[str] = (),
    secret_noise: bool = False,
) -> dict[str, PrivacyStatement]:
    """:func:`privacy_statement` for each client, from the number of rounds each took part in; all or none."""
    statements: dict[int | None, PrivacyStatement] = {}
    for name, count in rounds.items():
        try:
            statements[count] = statements.get(count) or privacy_statement(
                mechanism, count, delta, unprotected=unprotected, secret_noise=secret_noise
            )
        except NoGuaranteeError as error:
            raise NoGuaranteeError(f"client {name!r}: {error}") from error
    return {name: statements[count] for name, count in rounds.items()}


def noise_for(epsilon: float, delta: float, rounds: int, *, releases: int = 2) -> float:
    """The least noise multiplier, to six digits, with which ``rounds`` updates keep within ``epsilon`` at ``delta``.

    It goes into :class:`~evenhand.privacy.mechanism.ClippedGaussian` as ``noise_multiplier``, for Δw and Δλ alike.

    Parameters
    ----------
    releases
        What is sent in a round: 2 for Δw and Δλ, 1 for Δw alone (``dual_clip=None``).

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
        return min(_epsilons(_of_a_round((multiplier,) * releases), rounds, delta).values())

    low = high = 1.0
    while spent(high) > epsilon:
        low, high = high, 2 * high
    while spent(low) <= epsilon:
        low, high = low / 2, low
    # The upper end always keeps within ε.
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
    """Noise over sensitivity of each release, if the sensitivity is bounded and nothing else was sent."""
    if mechanism is None:
        raise NoGuaranteeError("the updates were sent as they are, without noise: protect them by ClippedGaussian")
    if isinstance(mechanism, GaussianNoise):
        raise NoGuaranteeError(
            "the updates were not clipped, so one record may move them by any amount and noise of any fixed size "
            "proves no ε: use ClippedGaussian"
        )
    # Nor is another subclass trusted: what it protects is its own affair.
    trusted = type(mechanism) in (ClippedGaussian, SharedGaussian, RecordGaussian)
    if not (trusted and isinstance(mechanism, ClippedGaussian | RecordGaussian)):
        raise NoGuaranteeError(f"{mechanism!r} is no mechanism an ε is known for: use ClippedGaussian")
    if min(mechanism.noise_multipliers) == 0:
        raise NoGuaranteeError("an update was clipped but got no noise: give a noise multiplier above 0")
    if unprotected:
        raise NoGuaranteeError(
            f"sent without protection: {', '.join(unprotected)}; no ε covers these, so leave them out or protect them "
            "as part of the update (for a network, replace BatchNorm by GroupNorm, which keeps no running means)"
        )
    return mechanism.noise_multipliers


def _of_a_round(multipliers: tuple[float, ...]) -> float:
    """The one noise multiplier that a round's releases, taken together, amount to."""
    return 1 / sqrt(sum(multiplier**-2 for multiplier in multipliers))


def _epsilons(multiplier: float, rounds: int, delta: float) -> dict[str, float]:
    """ε of so many Gaussian releases by each accountant.

    The accountants' own neighbouring relation says only whether and how sampling amplifies, and there is none here:
    the multiplier already counts the sensitivity of replacing.
    """
    accounting = accounting_package()
    if rounds == 0:
        return {"RDP": 0.0, "PLD": 0.0}
    event = accounting.SelfComposedDpEvent(accounting.GaussianDpEvent(multiplier), rounds)
    grid = _GRID * sqrt(rounds) / multiplier
    accountants = {
        "RDP": accounting.rdp.RdpAccountant(),
        "PLD": accounting.pld.PLDAccountant(value_discretization_interval=grid),
    }
    return {name: float(accountant.compose(event).get_epsilon(delta)) for name, accountant in accountants.items()}


def _of_records(mechanism: RecordGaussian, rounds: int, delta: float) -> dict[str, float]:
    """ε of DP-SGD by each accountant; neighbours are data sets of which one has a record blanked."""
    accounting = accounting_package()
    if rounds == 0:
        return {"RDP": 0.0, "PLD": 0.0}
    event, relation = mechanism.event(accounting, rounds), accounting.NeighboringRelation.REPLACE_SPECIAL
    grid = _RECORD_GRID * max(1.0, mechanism.noise_multiplier**-2)
    accountants = {
        "RDP": accounting.rdp.RdpAccountant(neighboring_relation=relation),
        "PLD": accounting.pld.PLDAccountant(neighboring_relation=relation, value_discretization_interval=grid),
    }
    with _orders_left_out_in_silence():
        return {name: float(accountant.compose(event).get_epsilon(delta)) for name, accountant in accountants.items()}


@contextmanager
def _orders_left_out_in_silence() -> Iterator[None]:
    """The RDP accountant warns of every order that it leaves out. That can only make its ε larger, and a search for the
    noise would fill the screen with it.
    """
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def accounting_package() -> Any:
    """The package, or an error that says how to get it."""
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError as error:
        raise MissingExtraError("Stating an ε", "privacy") from error
    return dp_accounting
