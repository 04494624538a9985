"""Each key of a party's policy, and a hostile job or server that tries to get around it and is refused."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
from support.clinics import CLIENTS, write_clinics
from support.federation import Network, run_sites, write_shops

from evenhand.errors import EvenhandError, ProtocolError, RunError
from evenhand.jobs.federation.dispatch import party_part, server_part
from evenhand.jobs.federation.files import PolicySection, read_federation_job, read_party, site_env
from evenhand.jobs.federation.predicting import Counted
from evenhand.jobs.federation.sites import party_program
from evenhand.jobs.ledger import Ledger, Limits
from evenhand.privacy.mechanism import ClippedGaussian, noise_terms
from evenhand.protocol import job as jobs
from evenhand.protocol.align import COMMON_ROWS, AlignParty, id_sums
from evenhand.protocol.asking import ASKED, AskedParty
from evenhand.protocol.enrol import OFFER, OUTCOME, EnrolParty
from evenhand.protocol.job import Job, RandomizedResponse
from evenhand.protocol.messages import Message, as_bytes
from evenhand.protocol.policy import OwnPolicy
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import HorizontalTerms, Terms
from evenhand.protocol.versions import own_version
from evenhand.solvers import roles as solver_roles
from evenhand.solvers.roles import vertical_terms
from evenhand.training.run import one_blas_thread
from evenhand.training.vertical_sources import Alignment
from evenhand.training.vertical_steps import party_steps
from evenhand.vertical.messages import DERIVATIVE
from evenhand.vertical.problem import PartyData

VERSION = as_bytes(own_version().to_text())
PARTS: Any = {"bank": "active", "shop": "passive", "phone": "passive"}
HONEST = vertical_terms(Job(solver="subspace", protection="masked", max_rounds=3), PARTS, 200, {})
NOISE = noise_terms(ClippedGaussian(1.0, None, 8.0)) | {"delta": 1e-5, "epsilon": 2.0}
CLINICS = HorizontalTerms(Job(solver="fedavg", max_rounds=3), dict.fromkeys(CLIENTS, "client"), 200, noise=NOISE)
EVERYBODY = pd.Index([f"c{number:03d}" for number in range(300)])

Attempt = Callable[[Path], object]
"""Tries to get around one key; raises the party's error, or returns its reason for a refusal."""


def goes_on(policy: OwnPolicy, terms: Terms) -> str:
    """Offer terms to the second participant, and tell it that everybody has accepted, whatever it says."""
    name = list(terms.participants)[1]
    role = EnrolParty(name, type(terms), policy)
    role.receive(OFFER.message(SERVER, name, terms=as_bytes(terms.to_plain()), version=VERSION))
    role.receive(OUTCOME.message(SERVER, name, reason=as_bytes("")))
    return str(role.outcome)


def offers_again(policy: OwnPolicy, accepted: Terms, other: Terms) -> str:
    """Offer terms that the policy accepts, and others once rows are aligned."""
    assert policy(accepted) is None
    role = EnrolParty("shop", type(other), policy, accepted)
    (answer,) = role.receive(OFFER.message(SERVER, "shop", terms=as_bytes(other.to_plain()), version=VERSION))
    assert answer.kind == "refused"
    return goes_on(policy, other)


def with_job(terms: Any, **changes: Any) -> Any:
    return replace(terms, job=replace(terms.job, **changes))


# -- what a job says of itself


def other_solver_at_the_second_offer(_: Path) -> object:
    return offers_again(OwnPolicy(solvers=["subspace"]), HONEST, with_job(HONEST, solver="fairvfl"))


def somebody_else_joins(_: Path) -> object:
    joined = vertical_terms(HONEST.job, {**PARTS, "broker": "passive"}, 200, {})
    return offers_again(OwnPolicy(participants=list(PARTS)), HONEST, joined)


def weaker_level(level: str) -> Attempt:
    return lambda _: goes_on(OwnPolicy(protection="dealer"), with_job(HONEST, protection=level))


def a_broken_level_with_the_jobs_own_flag(_: Path) -> object:
    """The job allows itself what the policy does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "EXPERIMENTAL", {"encrypted": "encrypted is broken by a test"})
        terms = with_job(HONEST, protection="encrypted", allow_experimental=True)
        assert OwnPolicy(protection="masked", allow_experimental=True)(terms) is None
        return goes_on(OwnPolicy(protection="masked"), terms)


# -- rounds and rows


def one_round_more(_: Path) -> object:
    """The server asks a fourth time after three rounds were agreed on."""
    terms = with_job(HONEST, protection="none")
    assert OwnPolicy(most_rounds=3)(terms) is None
    own = PartyData(np.random.default_rng(1).normal(size=(200, 4)))
    role = solver_roles.party(terms, "shop", own)
    role.start()
    for number in range(1, 5):
        nu = np.random.default_rng(number).choice([-1.0, 1.0], 200) / 200
        role.receive(DERIVATIVE.message(SERVER, "shop", round=number, last=0, nu=nu, curvature=np.zeros(0)))
    return None


def more_rounds_at_the_second_offer(_: Path) -> object:
    return offers_again(OwnPolicy(most_rounds=3), HONEST, with_job(HONEST, max_rounds=4))


def short_jobs_one_after_the_other(folder: Path) -> object:
    ledger = Ledger(folder)
    for number in range(8):
        ledger.add_round("table.csv", f"run {number // 2}", 10)
    policy = OwnPolicy(most_rounds=10, rounds_before=lambda: ledger.rounds("table.csv", without="run 4"))
    return policy(HONEST)


def one_person_named_often(_: Path) -> object:
    party = AlignParty("shop", EVERYBODY)
    party.start()
    return party.receive(COMMON_ROWS.message(SERVER, "shop", places=np.repeat([7, 8], 100)))


def more_rows_in_the_terms_than_there_are(_: Path) -> object:
    """The terms state 200 rows, and two are aligned."""
    draft = vertical_terms(replace(HONEST.job, protection="none"), PARTS, 0, {})
    source: Any = SimpleNamespace(ids=lambda: EVERYBODY, take=len)
    steps = party_steps(
        "shop", draft, source, Alignment(list(PARTS), "bank", "inner"), policy=OwnPolicy(least_rows=100)
    )
    for terms in (draft, replace(draft, n_rows=200)):
        role: Any = next(steps)
        role.receive(OFFER.message(SERVER, "shop", terms=as_bytes(terms.to_plain()), version=VERSION))
        role.receive(OUTCOME.message(SERVER, "shop", reason=as_bytes("")))
        if not terms.n_rows:
            aligning: Any = next(steps)
            aligning.receive(COMMON_ROWS.message(SERVER, "shop", places=np.arange(2)))
    return next(steps)


# -- privacy


def noise_in_name_only(_: Path) -> object:
    return goes_on(OwnPolicy(protected=True), replace(CLINICS, noise={"mechanism": "GaussianNoise", "weight_noise": 9}))


def less_noise_at_the_second_offer(_: Path) -> object:
    """The stated ε stays the same; it is no longer true."""
    less = replace(CLINICS, noise=NOISE | {"noise_multiplier": 1e-9})
    role = EnrolParty("north", HorizontalTerms, OwnPolicy(protected=True), CLINICS)
    role.receive(OFFER.message(SERVER, "north", terms=as_bytes(less.to_plain()), version=VERSION))
    role.receive(OUTCOME.message(SERVER, "north", reason=as_bytes("")))
    return role.outcome


def a_job_that_states_no_epsilon(_: Path) -> object:
    return goes_on(OwnPolicy(most_epsilon=4.0), replace(CLINICS, noise=NOISE | {"epsilon": None}))


def many_small_jobs(folder: Path) -> object:
    ledger, limits = Ledger(folder), PolicySection(most_epsilon=2.5).limits
    for number in range(3):
        ledger.spend("table.csv", f"run {number}", 1.0, 1e-5, limits)
    return None


def labels_without_privacy(_: Path) -> object:
    return goes_on(OwnPolicy(label_epsilon=1.0), HONEST)


def a_larger_label_epsilon_later(_: Path) -> object:
    small, large = (with_job(HONEST, label_privacy=RandomizedResponse(one)) for one in (1.0, 1.01))
    return offers_again(OwnPolicy(label_epsilon=1.0), small, large)


def another_question_about_the_same_labels(folder: Path) -> object:
    ledger, limits = Ledger(folder), Limits(labels=1.0)
    ledger.draw("labels", "table.csv", "good, by number", 0.5, limits)
    return ledger.draw("labels", "table.csv", "good, by text", 0.5, limits)


# -- what leaves


def hidden_twice(_: Path) -> object:
    inner = Message("shop", SERVER, "masked", {}).hiding([Message("shop", SERVER, "direction", {})])
    return OwnPolicy(never_send=["direction"]).veto(Message("shop", SERVER, "sealed", {}).hiding([inner]))


def clinics(folder: Path, data: dict[str, Any]) -> object:
    """Run a job across clients with these keys of `[data]`, where south allows columns a, b, sick and sex."""
    paths = write_clinics(folder, {"solver": "sqp", "max_rounds": 1})
    content = tomllib.loads(paths["job"].read_text())
    content["data"] |= data
    paths["job"].write_text(tomli_w.dumps(content))
    allowed = '\n[policy]\ncolumns = ["a", "b", "sick", "sex"]\n'
    paths["south"].write_text(paths["south"].read_text() + allowed)
    job = read_federation_job(paths["job"])

    def server(site: Any) -> Any:
        return server_part(job, lambda: site_env(paths["north"]), lambda: site.transcript, identity=paths["identity"])

    def client(name: str) -> Any:
        return lambda _: party_part(job, site_env(paths[name]), None)

    with one_blas_thread():
        ends = run_sites({SERVER: server, **{name: client(name) for name in CLIENTS}}, Network())
    assert isinstance(ends[SERVER], EvenhandError)
    return ends["south"]


def ends_of(job: Any, paths: dict[str, Path]) -> dict[str, Any]:
    """Run a job across columns; return everybody's end."""

    def server(site: Any) -> Any:
        return server_part(job, lambda: site_env(paths["bank"]), lambda: site.transcript, identity=paths["identity"])

    def party(name: str) -> Any:
        return lambda _: party_part(job, site_env(paths[name]), None)

    with one_blas_thread():
        return run_sites({SERVER: server, **{name: party(name) for name in job.parts}}, Network())


def every_column_by_default(folder: Path) -> object:
    return clinics(folder, {})


def a_column_as_a_sensitive_attribute(folder: Path) -> object:
    return clinics(folder, {"columns": ["a", "b"], "sensitive": ["ward"]})


# -- ids and questions


def ids_in_the_open(folder: Path) -> object:
    """Under `inner` the server gets checksums of all ids, and compares them with as many as it likes."""
    paths = write_shops(folder, {"solver": "subspace", "ids": "inner"})
    paths["shop"].write_text(paths["shop"].read_text() + "\n[policy]\nmost_ids = 500\n")
    job: Any = read_federation_job(paths["job"])
    return next(party_program(job, read_party(paths["shop"]), paths["shop"].parent))


def a_long_list_under_private_ids(_: Path) -> object:
    pytest.importorskip("nacl")
    from evenhand.privacy.private_align import PrivateAlignParty

    parties = {
        name: PrivateAlignParty(name, ids, ("bank", "shop"), **limits)
        for name, ids, limits in (("bank", EVERYBODY, {}), ("shop", EVERYBODY[:40], {"most_ids": 299}))
    }
    (blinded,) = (one for one in parties["bank"].start() if one.receiver == "shop")
    parties["shop"].start()
    return parties["shop"].receive(blinded)


def a_short_list_under_private_ids(_: Path) -> object:
    pytest.importorskip("nacl")
    everybody = Alignment(["bank", "shop"], "bank", "private", own_least=41)
    bank, shop = everybody.party("bank", EVERYBODY[:40]), everybody.party("shop", EVERYBODY)
    shop.start()
    return shop.receive(next(one for one in bank.start() if one.receiver == "shop"))


def few_rows_in_common(folder: Path) -> object:
    """The job asks for no number of common rows, and the server tells all parties to take 120."""
    paths = write_shops(folder, {"solver": "subspace", "ids": "left", "max_rounds": 1, "protection": "none"})
    paths["shop"].write_text(paths["shop"].read_text() + "\n[policy]\nleast_common = 121\n")
    job: Any = read_federation_job(paths["job"])
    return ends_of(job, paths)["shop"]


def a_job_that_measures_values(folder: Path) -> object:
    paths = write_shops(folder, {"solver": "subspace", "protection": "none", "values": True})
    job: Any = read_federation_job(paths["job"])
    return next(party_program(job, read_party(paths["shop"]), paths["shop"].parent))


def a_run_that_goes_on_without_somebody(_: Path) -> object:
    return goes_on(OwnPolicy(lost_party="end"), with_job(HONEST, lost_party="continue"))


def a_question_after_none(folder: Path) -> object:
    return Counted(folder / "asked.json", OwnPolicy(questions="none"))(0)


def people_outside_the_run(_: Path) -> object:
    """Whoever is in the table and not in the run is denied, as if unknown."""
    role = AskedParty("shop", EVERYBODY, among=id_sums(EVERYBODY[:3])[1])
    kind, sums = id_sums(EVERYBODY[:10])
    (answer,) = role.receive(ASKED.message(SERVER, "shop", kind=as_bytes(kind), sums=sums))
    return f"held {answer['held'].sum()} of 10"


def many_questions_at_once(folder: Path) -> object:
    """Eight questions for ten people each, at the same time: only two of them fit."""
    count = Counted(folder / "asked.json", OwnPolicy(most_asked=25))

    def ask(_: int) -> str:
        try:
            count(10)
        except RunError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(ask, range(8)))
    assert said.count("") == 2
    return next(filter(None, said))


# -- sums


def sums_of_fewer_in_the_terms(_: Path) -> object:
    terms = replace(CLINICS, noise={}, job=Job(solver="sqp", protection="masked", least_summed=1))
    return goes_on(OwnPolicy(least_summed=2), terms)


def a_sum_without_one_of_us(folder: Path) -> object:
    ledger = Ledger(folder)
    ledger.add_sum("table.csv", "one", CLIENTS, 2)
    return ledger.add_sum("table.csv", "two", CLIENTS[:2], 2)


HOSTILE: dict[str, list[tuple[Attempt, str]]] = {
    "solvers": [(other_solver_at_the_second_offer, "no part in solver 'fairvfl'")],
    "most_rounds": [
        (one_round_more, "3 rounds allow 3; another is refused"),
        (more_rounds_at_the_second_offer, "4 rounds are more than its 3"),
        (short_jobs_one_after_the_other, "more than the 2 that are left of its 10"),
    ],
    "least_rows": [
        (one_person_named_often, "different ones; the message is refused"),
        (more_rows_in_the_terms_than_there_are, "the terms state 200 training rows, but shop has 2"),
    ],
    "least_common": [
        (a_short_list_under_private_ids, "compares its own with 41 or more"),
        (few_rows_in_common, "shop shares 120 rows with the others, fewer than the 121 of its policy"),
    ],
    "participants": [(somebody_else_joins, "no part together with broker")],
    "protected": [
        (noise_in_name_only, "only where noise covers all that clients send"),
        (less_noise_at_the_second_offer, "differ from the accepted ones"),
    ],
    "most_epsilon": [
        (a_job_that_states_no_epsilon, "the terms state no ε"),
        (many_small_jobs, "most_epsilon is 2.5"),
    ],
    "never_send": [(hidden_twice, "messages of kind 'direction' never leave it")],
    "columns": [
        (every_column_by_default, "the job asks for column 'c'"),
        (a_column_as_a_sensitive_attribute, "the job asks for column 'ward'"),
    ],
    "protection": [
        (weaker_level(level), f"{level!r} is less than its 'dealer'") for level in ("none", "auto", "masked")
    ],
    "most_ids": [
        (ids_in_the_open, "ids = 'inner' lets the server compare shop's ids with any list"),
        (a_long_list_under_private_ids, "bank has 300 ids"),
    ],
    "questions": [(a_question_after_none, "answers no questions"), (people_outside_the_run, "held 3 of 10")],
    "most_asked": [(many_questions_at_once, "20 people were asked for before and 10 are now")],
    "least_summed": [
        (sums_of_fewer_in_the_terms, "sums over 1 clients; it wants 2 or more"),
        (a_sum_without_one_of_us, "the difference would show 1 of them"),
    ],
    "values": [(a_job_that_measures_values, "measures what each party's data is worth")],
    "lost_party": [(a_run_that_goes_on_without_somebody, "takes part only where the run ends")],
    "allow_experimental": [(a_broken_level_with_the_jobs_own_flag, "encrypted is broken by a test")],
    "label_epsilon": [
        (labels_without_privacy, "labels have no privacy"),
        (a_larger_label_epsilon_later, "label_privacy of 1.01 is more than its 1"),
        (another_question_about_the_same_labels, "label_epsilon is 1"),
    ],
}
"""For each key, attempts to get around it and what the party says."""


@pytest.mark.parametrize(
    ("attempt", "says"),
    [pytest.param(*case, id=f"{key}-{place}") for key, cases in HOSTILE.items() for place, case in enumerate(cases)],
)
def test_a_hostile_job_does_not_get_around_a_policy(attempt: Attempt, says: str, tmp_path: Path) -> None:
    try:
        found = str(attempt(tmp_path))
    except (ProtocolError, RunError) as error:
        found = str(error)
    assert says in found


def test_every_key_of_a_policy_has_a_hostile_case() -> None:
    assert set(HOSTILE) == set(PolicySection.model_fields)
    # How often a run trains follows from its terms, and earlier rounds from the ledger; they are no keys.
    assert {one.name for one in fields(OwnPolicy)} - {"trainings", "rounds_before"} <= set(HOSTILE)
