"""Protected runs: the same solver behind layers; sums and products to the bit, and nothing that tells of one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare, norm
from support.contracts import (
    Reborn,
    assert_goes_on_from_any_checkpoint,
    assert_malformed_is_refused,
    assert_same_ends,
)
from support.faults import FaultyInProcess
from support.problems import deal, small
from support.schedules import ScheduleCase, ends_alike
from vertical.contract import CLOCK, make_job

from evenhand.auditing.evidence import auc
from evenhand.auditing.gradient_attacks import minimum_norm
from evenhand.auditing.row_attacks import by_sign
from evenhand.errors import DataError, InputError, ProtocolError
from evenhand.models.saved import joined_model
from evenhand.privacy import fixed_products
from evenhand.privacy.fixed_products import ProductGrid
from evenhand.privacy.pairwise import PairwiseMasks
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Report, Role
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess
from evenhand.solvers.roles import solvers_party, solvers_server, vertical_terms
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.problem import PartyColumns
from evenhand.vertical.protected import sharing, sharing_server, triples
from evenhand.vertical.protected.build import server_shares
from evenhand.vertical.protected.guarding import check_columns, leverages
from evenhand_reproductions.in_memory import Holdings, train_vertical

PROBLEM = small(2, rows=90)
BLOCKS = [[0], [1, 2], [3]]
LEVELS = ("masked", "dealer", "encrypted")
SHORT: dict[str, dict[str, Any]] = {
    "masked": {"max_rounds": 2, "tol": 0.0},
    "dealer": {"max_rounds": 30, "tol": 1e-6},
    "encrypted": {"max_rounds": 30, "tol": 1e-6},
}
"""Random words change the last digits on shared weights, so that only optima are compared."""
CASES = [("subspace", "masked"), ("subspace", "dealer"), ("subspace", "encrypted"), ("fairvfl", "masked")]


def job_of(solver: str, level: str, **settings: Any) -> Job:
    return make_job(solver, **{"protection": level, "allow_experimental": True, **settings})


def train(job: Job, **runtime: Any) -> VerticalRun:
    return train_vertical(job, deal(PROBLEM, BLOCKS), PROBLEM.labels, PROBLEM.sensitive, **runtime)


def hold(job: Job) -> Holdings:
    """Everybody's data, with keys that are agreed on: roles made from it are of one attempt."""
    return Holdings.of(job, deal(PROBLEM, BLOCKS), PROBLEM.labels, PROBLEM.sensitive).with_keys()


def make(job: Job, held: Holdings | None = None) -> dict[str, Role]:
    server, others = (hold(job) if held is None else held).roles()
    return {role.name: role for role in [server, *others]}


def weights(run: VerticalRun) -> list[bytes]:
    return [model.weights.tobytes() for model in run.models.values()]


@pytest.mark.parametrize("level", LEVELS)
def test_the_optimum_is_that_of_an_open_run(level: str) -> None:
    plain, hidden = (train(job_of("subspace", one, tol=1e-7, max_rounds=200)) for one in ("none", level))
    assert plain.certificate.converged
    assert hidden.certificate.converged
    assert hidden.certificate.objective == pytest.approx(plain.certificate.objective, rel=1e-5)
    for one, other in zip(plain.models.values(), hidden.models.values(), strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=2e-2)


@pytest.mark.parametrize("solver", ["subspace", "fairvfl"])
def test_masks_change_no_bit(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(solver, "masked", max_rounds=6, tol=0.0)
    masked = train(job)
    monkeypatch.setattr(PairwiseMasks, "mask", lambda self, label, size: np.zeros(size, dtype=np.uint64))
    assert weights(masked) == weights(train(job))


def no_words(seed: bytes, label: str, size: int) -> Any:
    return np.zeros(size, dtype=np.uint64)


def cut_in_the_clear(shares: Any, places: int, *, first: bool) -> Any:
    return (shares.view(np.int64) >> places).view(np.uint64)


@pytest.mark.parametrize(("level", "seed"), [("dealer", 0), ("dealer", 1), ("dealer", 2), ("encrypted", 0)])
def test_shares_train_as_the_plain_fixed_point_run_does(level: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without random words the party holds everything, and the server's shares are zero: nothing is shared."""
    problem, job = small(seed, rows=300), job_of("subspace", "dealer", tol=1e-6)
    given = (deal(problem, BLOCKS), problem.labels, problem.sensitive)
    shared = train_vertical(job_of("subspace", level, tol=1e-6), *given)
    monkeypatch.setattr(triples, "stream", no_words)
    for module in (sharing, sharing_server, fixed_products):
        monkeypatch.setattr(module, "cut", cut_in_the_clear)
    plain = train_vertical(job, *given)
    assert abs(shared.certificate.rounds - plain.certificate.rounds) <= 1
    assert shared.certificate.objective == pytest.approx(plain.certificate.objective, rel=1e-6)
    for one, other in zip(shared.models.values(), plain.models.values(), strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-3)


@pytest.mark.parametrize("level", ["dealer", "encrypted"])
def test_a_share_that_was_cut_wrongly_is_found_and_the_exchange_repeated(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cut in ten is made wrong here. It happens to one in a million."""
    rng, right = np.random.default_rng(0), sharing_server.cut

    def wrong(shares: Any, places: int, *, first: bool) -> Any:
        found = right(shares, places, first=first)
        if first and rng.random() < 0.1:
            found.flat[0] += np.uint64(1 << (64 - places))
        return found

    job = job_of("subspace", level, tol=1e-6)
    good = train(job)
    monkeypatch.setattr(sharing_server, "cut", wrong)
    roles = make(job)
    InProcess(list(roles.values()), CLOCK).run()
    found = solvers_server(roles["server"])
    assert found.certificate is not None
    assert found.certificate.objective == pytest.approx(good.certificate.objective, rel=1e-5)
    assert roles["server"].inner.number > found.certificate.rounds + 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("level", LEVELS)
def test_effort_only_grows_so_that_no_ones_clock_goes_back(level: str) -> None:
    class Watched(InProcess):
        def _serve(self, name: str, mailbox: Any) -> None:
            before = mailbox.role.effort
            super()._serve(name, mailbox)
            assert mailbox.role.effort >= before

    roles = make(job_of("subspace", level, max_rounds=3, tol=0.0))
    open_roles = make(job_of("subspace", "none", max_rounds=3, tol=0.0, options={"own_columns": True}))
    Watched(list(roles.values()), CLOCK).run()
    InProcess(list(open_roles.values()), CLOCK).run()
    # What a protection costs counts as well; products are the label holder's in one level, and the parties' in another.
    more = [name for name, role in open_roles.items() if roles[name].effort > 1.2 * role.effort]
    assert more or level == "masked"


@pytest.mark.parametrize(("solver", "level"), CASES)
def test_a_run_goes_on_from_any_checkpoint(solver: str, level: str) -> None:
    job = job_of(solver, level, **SHORT[level])
    if level == "masked":
        assert_goes_on_from_any_checkpoint(partial(make, job), CLOCK)
        return
    taken: list[dict[str, Any]] = []
    whole = InProcess(list(make(job).values()), CLOCK, on_report=lambda _: taken.append(whole.snapshot()))
    whole.run()
    assert len(taken) > 1
    for states in taken:
        resumed = InProcess(list(make(job).values()), CLOCK)
        resumed.restore(states)
        resumed.run()
        assert_same_model(resumed, whole)


@pytest.mark.parametrize("level", LEVELS)
def test_roles_are_made_anew_after_every_turn(level: str, tmp_path: Path) -> None:
    job = job_of("subspace", level, max_rounds=2, tol=0.0)
    again = partial(make, job, hold(job))
    whole, reborn = InProcess(list(again().values()), CLOCK), Reborn(again, CLOCK, tmp_path)
    whole.run()
    reborn.run()
    assert_same_ends(reborn, whole)


@pytest.mark.parametrize(("solver", "level"), CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_faults_change_nothing(solver: str, level: str, seed: int) -> None:
    job = job_of(solver, level, **SHORT[level])
    ScheduleCase(solver, partial(make, job), CLOCK, ends_alike if level == "masked" else same_model).run(seed)


def same_model(case: ScheduleCase, runtime: FaultyInProcess, _: list[Report]) -> None:
    assert_same_model(runtime, case.calm[0])


def assert_same_model(left: InProcess, right: InProcess) -> None:
    """Other random words give shares that are cut a unit apart."""
    one, other = (solvers_server(each.mailboxes["server"].role) for each in (left, right))
    assert one.certificate is not None
    assert other.certificate is not None
    assert one.certificate.objective == pytest.approx(other.certificate.objective, rel=1e-6)
    for name in ("p0", "p1", "p2"):
        found = [joined(each, name) for each in (left, right)]
        np.testing.assert_allclose(*found, atol=1e-4)


def joined(runtime: InProcess, name: str) -> Any:
    """Return a party's weights, which a test may join from the shares of party and server."""
    other = server_shares(runtime.mailboxes["server"].role).get(name)
    return joined_model(solvers_party(runtime.mailboxes[name].role).trained, other).weights


@pytest.mark.parametrize("level", LEVELS)
def test_a_malformed_message_is_refused_and_changes_nothing(level: str) -> None:
    job = job_of("subspace", level, max_rounds=2, tol=0.0)
    held = hold(job)
    assert_malformed_is_refused(make(job, held), _heard(job, held))


def _heard(job: Job, held: Holdings | None = None) -> list[Message]:
    runtime = InProcess(list(make(job, held).values()), CLOCK, Transcript(keep_messages=True))
    runtime.run()
    return runtime.transcript.messages or []


@pytest.mark.parametrize("level", LEVELS)
def test_what_leaves_a_passive_party_and_what_reaches_it(level: str) -> None:
    """Nothing in the clear but heads; words that are uniform over every byte; no ν where it is hidden."""
    messages = _heard(job_of("subspace", level, max_rounds=5, tol=0.0))
    passive = {"p1", "p2"}
    sent = [one for one in messages if one.sender in passive]
    own = {
        "dealer": ("joining", "hidden-columns", "hidden-shares", "share-kept"),
        "encrypted": ("column-count", "encrypted-products", "encrypted-inner-products", "encrypted-share"),
    }
    assert {one.kind for one in sent} <= {"masked", "public-key", *own.get(level, ())}
    told = {one.kind for one in messages if one.receiver in passive}
    assert ("derivative" in told) == ("coefficients" in told) == (level == "masked")
    hidden = [one["words"] for one in sent if one.kind in ("masked", "hidden-columns", "hidden-shares")]
    told_words = [one for one in messages if one.kind in ("hidden-derivative", "blinded-derivative")]
    hidden += [one[key] for one in told_words if one.receiver == "p1" for key in ("nu", "pull")]
    hidden += [one["shares"] for one in told_words]
    hidden += [one["words"] for one in messages if one.kind == "hidden-coefficients" and one.receiver == "p1"]
    for one in messages:
        hidden += [one[key] for key in ("slopes", "directions", "scores", "products") if one.kind == "corrections"]
    words = np.concatenate([one.ravel() for one in hidden]).view(np.uint8)
    # Keys are fresh each time: a false alarm once in a million runs.
    assert chisquare(np.bincount(words, minlength=256)).pvalue > 1e-6


def test_where_every_round_begins_warm_scores_are_summed_too() -> None:
    first = train(job_of("subspace", "masked", tol=1e-6))
    again = train(job_of("subspace", "masked", tol=1e-6), start=first.as_start())
    assert again.certificate.objective == pytest.approx(first.certificate.objective, rel=1e-5)
    assert again.certificate.rounds < first.certificate.rounds


@pytest.mark.parametrize("level", ["dealer", "encrypted"])
def test_a_party_takes_no_derivative_in_the_clear_where_it_is_to_see_none(level: str) -> None:
    roles = make(job_of("subspace", level))
    open_one = next(one for one in _heard(job_of("subspace", "masked", max_rounds=1)) if one.kind == "derivative")
    with pytest.raises(ProtocolError, match="derivative"):
        roles["p1"].receive(Message("server", "p1", open_one.kind, open_one.body))


def _level(parts: list[str], **job: Any) -> str:
    participants: Any = {f"p{place}": part for place, part in enumerate(parts)}
    return vertical_terms(Job(**job, allow_experimental=True), participants, 100, {}).job.protection


def test_sums_are_the_default_where_there_are_several_to_be_summed() -> None:
    assert _level(["active", "passive", "passive"]) == "masked"
    assert _level(["active", "passive"]) == "none"
    assert _level(["active", "active", "passive", "passive"]) == "none"
    assert _level(["active", "passive", "passive"], solver="fairvfl") == "none"
    assert _level(["active", "passive", "passive"], protection="none") == "none"


@pytest.mark.parametrize(
    ("parts", "job", "why"),
    [
        (["active", "passive"], {"protection": "masked"}, "hides nothing"),
        (["active", "active", "passive"], {"protection": "dealer"}, "exactly one active party"),
        (["active", "passive"], {"protection": "dealer", "solver": "trees"}, "does not support protection"),
        (["active", "passive"], {"protection": "masked", "model": "mlp"}, "linear models with pace"),
        (["active", "passive"], {"protection": "secret"}, "choose one of"),
    ],
)
def test_a_protection_that_would_protect_nothing_is_refused(parts: list[str], job: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        _level(parts, **job)


def test_nobody_may_bear_the_dealers_name() -> None:
    with pytest.raises(InputError, match="third party"):
        vertical_terms(
            Job(protection="dealer", allow_experimental=True), {"bank": "active", "dealer": "passive"}, 100, {}
        )


def test_what_a_gradient_tells_of_single_rows_is_refused() -> None:
    rng = np.random.default_rng(0)
    rare = np.zeros((300, 2))
    rare[:150, 0] = 1.0
    rare[:2, 1] = 1.0
    with pytest.raises(DataError, match="belongs to 2 rows only"):
        check_columns("shop", rare)
    far = rng.standard_normal((300, 3))
    far[7] = [900.0, 0.0, 0.0]
    with pytest.raises(DataError, match="row 7 has leverage"):
        check_columns("shop", far)
    with pytest.raises(DataError, match="at least 10 rows a column"):
        check_columns("shop", rng.standard_normal((20, 3)))
    check_columns("shop", rng.standard_normal((300, 3)))


def test_what_is_refused_is_what_an_attack_can_undo() -> None:
    """A row of leverage 1: its ν is the least-squares answer to the gradient, whatever the other rows are."""
    rng = np.random.default_rng(1)
    matrix = np.column_stack([rng.standard_normal((200, 2)), np.eye(200)[:, 3]])
    nu = rng.choice([-0.5, 0.5], 200)
    assert leverages(matrix)[3] == pytest.approx(1.0, abs=1e-6)
    found = matrix @ np.linalg.lstsq(matrix.T @ matrix, matrix.T @ nu, rcond=None)[0]
    assert found[3] == pytest.approx(nu[3])
    assert leverages(matrix[:, :2]).max() < 0.5


@pytest.mark.parametrize(
    ("rows", "columns", "told"), [(30, 15, 0.85), (120, 60, 0.85), (600, 15, 0.0)], ids=["few", "many", "accepted"]
)
def test_batches_are_refused_where_the_least_norm_answer_tells_labels(rows: int, columns: int, told: float) -> None:
    """The audit's attack on X_kᵀν: where a batch passes, it is right about labels hardly more often than chance."""
    rng = np.random.default_rng(rows)
    matrix, labels = rng.standard_normal((rows, columns)), rng.choice([-1.0, 1.0], rows)
    nu = -labels * rng.uniform(0.3, 0.7, rows) / rows
    right = auc(by_sign(minimum_norm(matrix, matrix.T @ nu)), labels > 0).value
    if told:
        assert right > told
        with pytest.raises(DataError, match="rows a column"):
            check_columns("shop", matrix)
    else:
        check_columns("shop", matrix)
        assert right < 0.65


def test_a_rare_category_is_refused_since_its_gradient_counts_its_labels() -> None:
    """Four people's ν at the start is ∓1/2n: their sum says how many are positive, and often who is."""
    rng = np.random.default_rng(4)
    matrix = np.column_stack([rng.standard_normal((400, 2)), np.r_[np.ones(4), np.zeros(396)]])
    labels = np.r_[np.ones(4), rng.choice([-1.0, 1.0], 396)]
    gradient = matrix.T @ (-0.5 * labels / 400)
    assert round(2 - 400 * gradient[2]) == 4
    with pytest.raises(DataError, match="belongs to 4 rows only"):
        check_columns("shop", matrix)
    check_columns("shop", np.column_stack([matrix[:, :2], np.r_[np.ones(5), np.zeros(395)]]))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_how_often_a_row_of_some_leverage_is_told(share: float) -> None:
    """Of leverage h: Φ(√(h / (1 − h))) of the time where others are many. At the most allowed that is 84 %."""
    rng = np.random.default_rng(5)
    others = rng.standard_normal((400, 1))
    matrix = np.vstack([np.full((1, 1), np.sqrt(share / (1.0 - share) * float((others**2).sum()))), others])
    assert leverages(matrix)[0] == pytest.approx(share)
    nu = rng.choice([-1.0, 1.0], (4000, 401))
    found = matrix[0, 0] * (nu @ matrix[:, 0]) / float((matrix**2).sum())
    assert np.mean(np.sign(found) == nu[:, 0]) == pytest.approx(norm.cdf(np.sqrt(share / (1.0 - share))), abs=0.03)


def test_leverages_are_the_diagonal_of_the_hat_matrix() -> None:
    matrix = np.random.default_rng(2).standard_normal((60, 4))
    expected = np.diag(matrix @ np.linalg.inv(matrix.T @ matrix) @ matrix.T)
    np.testing.assert_allclose(leverages(matrix), expected, atol=1e-6)


def test_columns_too_large_for_the_grid_are_refused() -> None:
    grid = ProductGrid(500)
    with pytest.raises(DataError, match="Scale the columns"):
        grid.columns(100.0 * np.random.default_rng(3).standard_normal((500, 3)), "shop")


def test_an_answer_to_the_wrong_number_is_refused() -> None:
    job = job_of("subspace", "masked", max_rounds=2, tol=0.0)
    held = hold(job)
    wrong = next(one for one in _heard(job, held) if one.kind == "masked" and one.integer("number") == 1)
    with pytest.raises(ProtocolError, match="out of turn"):
        make(job, held)["server"].receive(wrong)
    with pytest.raises(ProtocolError, match="masks with keys of another attempt"):
        make(job)["server"].receive(wrong)


def test_secrets_are_forgotten_at_the_end() -> None:
    for level in LEVELS:
        roles = make(job_of("subspace", level, max_rounds=2, tol=0.0))
        InProcess(list(roles.values()), CLOCK).run()
        for role in roles.values():
            kept = {name: value for name, value in role.snapshot().items() if "seed" in name or "secret" in name}
            assert all(np.asarray(value).size == 0 for value in kept.values()), (level, role.name, kept)
        assert solvers_server(roles["server"]).certificate is not None


def test_columns_are_dealt_as_they_are() -> None:
    """A sparse block and a dense one are the same words."""
    sp = pytest.importorskip("scipy.sparse")
    grid, dense = ProductGrid(90), PROBLEM.matrix[:, :2] * (PROBLEM.matrix[:, :2] > 0)
    np.testing.assert_array_equal(
        grid.columns(grid.on_grid(sp.csr_matrix(dense)), "a"), grid.columns(grid.on_grid(dense), "a")
    )
    assert PartyColumns("a", dense).matrix is dense
