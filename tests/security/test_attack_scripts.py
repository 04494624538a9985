"""Attacks that once worked, in their own words: two questions under one mask, noise over rounds, exact sums of labels.

Each has a control on which it still succeeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.lattice import ask

from evenhand.auditing.views import listening
from evenhand.privacy import lattice
from evenhand.privacy.fixed_products import ProductGrid
from evenhand.privacy.lattice import ProductPacking
from evenhand.privacy.rings import DEGREE, MODULUS
from evenhand.protocol.job import Job
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.in_memory import train_vertical

pytest.importorskip("nacl")
TESTS = Path(__file__).resolve().parents[1]
ROWS = 600


# -- `encrypted`: the server has its key, its questions and the answers


def words_of(seed: int = 0) -> Any:
    """Return a column of 17 binary places, as words."""
    return np.rint(np.random.default_rng(seed).standard_normal((ROWS, 1)) * 2**17).astype(np.int64).view(np.uint64)


def told(matrix: Any, vector: int) -> Any:
    """Decrypt the answer to a question about X times a number of the server's choice."""
    asked = ask(ProductPacking.of(ROWS, 1), np.array([vector], dtype=np.uint64))
    c0, c1, _ = asked.answer(matrix)
    phase = asked.phase(c0, c1)
    return np.array([int(one) % 2**64 for one in (2 * phase * 2**64 + MODULUS) // (2 * MODULUS)], dtype=np.uint64)


def exact_share(matrix: Any) -> float:
    """Ask for 0 · X and for 1 · X; return the share of rows at which the difference is the column."""
    return float(((told(matrix, 1) - told(matrix, 0))[:ROWS] == matrix[:, 0]).mean())


def test_the_difference_of_two_questions_is_not_the_column(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exact_share(words_of()) == 0.0
    mask = lattice.scaled_up(lattice.fresh(DEGREE)[None])[0]
    monkeypatch.setattr(lattice, "_mask", lambda size, _: mask[..., :size].copy())
    assert exact_share(words_of()) == 1.0


def from_many_answers(matrix: Any, answers: int = 14) -> float:
    """Fit a column to the noise of several answers by least squares, as rounds of training bring them."""
    turn = np.exp(1j * np.pi * np.arange(DEGREE) / DEGREE)
    above, below = np.zeros(DEGREE, dtype=complex), np.zeros(DEGREE)
    for _ in range(answers):
        vector = lattice.fresh(1)
        asked = ask(ProductPacking.of(ROWS, 1), vector)
        c0, c1, _ = asked.answer(matrix)
        phase = asked.phase(c0, c1)
        whole = (2 * phase * 2**64 + MODULUS) // (2 * MODULUS)
        noise = (phase - (2 * MODULUS * whole + 2**64) // 2**65).astype(float)
        errors = np.fft.fft(asked.errors(vector).astype(float) * turn)
        above += np.conj(errors) * np.fft.fft(noise * turn)
        below += np.abs(errors) ** 2
    found = (np.fft.ifft(above / below) / turn).real[:ROWS]
    return float(np.corrcoef(found, matrix[:, 0].view(np.int64).astype(float))[0, 1])


def test_the_noise_of_many_answers_is_not_the_column(monkeypatch: pytest.MonkeyPatch) -> None:
    # Chance exceeds .26 over 600 rows once in 10⁹ tries.
    assert abs(from_many_answers(words_of())) < 0.26
    monkeypatch.setattr(lattice, "_mask", lambda size, _: lattice.scaled_up(lattice.fresh(size)[None])[0])
    assert from_many_answers(words_of()) > 0.99


# -- `dealer`: a passive party with sparse columns has what it was sent

DEPARTMENTS, CUSTOMERS, MARKS = 16, 8, 14


@cache
def shop() -> tuple[Any, Any, Any]:
    """Return what people spend in departments that few visit, yes/no columns, and labels."""
    rng = np.random.default_rng(3)
    spent = np.zeros((ROWS, DEPARTMENTS))
    for column in spent.T:
        column[rng.choice(ROWS, CUSTOMERS, replace=False)] = np.round(rng.uniform(20.0, 200.0, CUSTOMERS), 2)
    marks = (rng.random((ROWS, MARKS)) < 0.5).astype(float)
    return spent, marks, np.where(rng.random(ROWS) < 0.4, 1.0, -1.0)


def columns() -> Any:
    spent, marks, _ = shop()
    return np.hstack([(spent - spent.mean(axis=0)) / spent.std(axis=0), marks])


def labels_from(product: Any) -> int:
    """Return how many labels are certain and right if `product` is Xᵀν of the first round: subset sums, one by one."""
    spent, _, labels = shop()
    bits = (np.arange(2**CUSTOMERS)[:, None] >> np.arange(CUSTOMERS)) & 1
    positives = int((labels > 0).sum())
    right = 0
    for place, column in enumerate(columns().T[:DEPARTMENTS]):
        inside = np.flatnonzero(spent[:, place])
        wanted = positives / ROWS * column.sum() - ROWS * product[place] - column.min() * positives
        (hits,) = np.nonzero(np.abs(bits @ (column[inside] - column.min()) - wanted) < 1e-4)
        right += int((bits[hits[0]] == (labels[inside] > 0)).sum()) if len(hits) == 1 else 0
    return right


def unlikely_count(product: Any) -> float:
    """Return how far from whole numbers the positives by yes/no column are, at the best number of positives."""
    _, marks, _ = shop()
    every = np.arange(1, ROWS)[:, None] / ROWS * marks.sum(axis=0) - ROWS * product[DEPARTMENTS:]
    counts = (every > -0.5) & (every < marks.sum(axis=0) + 0.5)
    return float(np.where(counts, np.abs(every - np.rint(every)), np.inf).max(axis=1).min())


def sent_to_shop(level: Any) -> Iterator[Any]:
    """Yield all vectors that could be Xᵀν, as numbers and as words of the grid."""
    rng = np.random.default_rng(4)
    parties = [PartyColumns(name, rng.normal(size=(ROWS, 3)), name == "bank") for name in ("bank", "phone")]
    transcript, grid, width = listening(), ProductGrid(ROWS), DEPARTMENTS + MARKS
    job = Job(solver="subspace", protection=level, max_rounds=2, tol=0.0, allow_experimental=True)
    train_vertical(job, [*parties, PartyColumns("shop", columns())], shop()[2], transcript=transcript)
    for message in transcript.messages or ():
        for array in message.body.values() if message.receiver == "shop" else ():
            numbers = np.asarray(array).ravel().astype(np.float64)
            if len(numbers) >= width:
                for part in (numbers[:width], numbers[-width:]):
                    yield part
                    yield part / (ROWS * 2.0 ** (grid.column_bits + grid.nu_bits))


def test_subset_sums_and_counts_find_nothing_in_what_a_passive_party_is_sent() -> None:
    labels = shop()[2]
    product = columns().T @ (((labels > 0).mean() - (labels > 0)) / ROWS)
    assert labels_from(product) == DEPARTMENTS * CUSTOMERS
    assert unlikely_count(product) < 1e-9
    vectors = list(sent_to_shop("dealer"))
    assert vectors
    for one in vectors:
        assert labels_from(one) < DEPARTMENTS * CUSTOMERS / 2
        assert unlikely_count(one) > 0.02


# -- every class of attack has two instances at least

CLASSES = {
    "circuit privacy": (
        "security/test_encrypted.py::test_an_answer_does_not_reveal_the_column",
        "security/test_attack_scripts.py::test_the_noise_of_many_answers_is_not_the_column",
    ),
    "a promise about training only": (
        "security/test_shared_weights.py::test_after_training_no_passive_party_sends_its_own_scores",
        "security/test_vfb2_masks.py::test_after_training_the_server_learns_the_sum_of_scores_only",
    ),
    "replay": (
        "security/test_encrypted.py::test_a_question_is_answered_once_and_no_other_while_it_is_open",
        "security/test_attack_scripts.py::test_the_difference_of_two_questions_is_not_the_column",
    ),
    "exact sums of labels": (
        "security/test_shared_weights.py::test_what_a_passive_party_gets_is_uniform_whatever_the_labels_are",
        "security/test_attack_scripts.py::test_subset_sums_and_counts_find_nothing_in_what_a_passive_party_is_sent",
    ),
    "what is not in the account": (
        "security/test_account.py::test_counts_by_label_group_and_decision_stay_at_home",
        "security/test_before_training.py::test_labels_that_the_job_gives_are_not_said_from_rows",
    ),
    "noise that is optional": (
        "security/test_account.py::test_a_client_with_noise_measures_nothing",
        "security/test_account.py::test_terms_with_another_mechanism_are_refused_at_the_second_offer",
    ),
    "who takes part": (
        "security/test_present.py::test_positions_are_in_order_each_once_and_of_members",
        "security/test_present.py::test_differences_of_two_sums_hold_enough_clients",
    ),
    "unauthenticated keys": (
        "security/test_relay.py::test_a_swapped_key_is_refused_by_the_party_that_would_have_used_it",
        "security/test_relay.py::test_a_server_in_one_process_cannot_swap_keys_either",
    ),
    "membership by asking": (
        "security/test_guessed_ids.py::test_a_table_of_all_possible_ids_is_refused",
        "security/test_guessed_ids.py::test_after_private_ids_only_people_of_the_run_are_admitted_to",
    ),
    "limits that the asker keeps": (
        "security/test_round_limits.py::test_no_more_rounds_are_answered_than_were_accepted",
        "security/test_resumed_rounds.py::test_answers_over_all_attempts_are_limited",
    ),
    "policy in name only": (
        "security/test_hidden_kinds.py::test_masks_do_not_bring_out_what_a_party_keeps",
        "security/test_policy_keys.py::test_a_hostile_job_does_not_get_around_a_policy",
    ),
    "no ledger": (
        "security/test_ledger.py::test_many_jobs_with_slightly_smaller_epsilons_say_no_more_than_one",
        "security/test_sums_over_jobs.py::test_a_second_job_without_a_client_is_refused_by_the_others",
    ),
    "state brought back": (
        "security/test_new_attempt.py::test_a_party_that_is_resumed_with_another_question_masks_anew",
        "security/test_shared_weights.py::test_a_resumed_run_hides_the_same_columns_behind_new_words",
    ),
    "an audit that understates": (
        "auditing/test_independent_attacker.py::test_columns_under_masks",
        "auditing/test_audit_levels.py::test_the_closing_exchange_is_part_of_the_audit",
    ),
}


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_of_attack_has_two_instances(kind: str) -> None:
    for place in CLASSES[kind]:
        path, _, name = place.partition("::")
        assert f"\ndef {name}(" in (TESTS / path).read_text(encoding="utf-8")
