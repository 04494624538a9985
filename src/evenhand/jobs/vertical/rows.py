"""A party's rows, read from the table that a job or the party's own file names.

The same class serves parties in one process and parties at separate sites, so both train on the same numbers.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp

from evenhand.arrays import Booleans, Integers, Matrix
from evenhand.constraints import groups_frame
from evenhand.constraints.families import check_targets
from evenhand.constraints.group_cuts import check_attribute
from evenhand.constraints.groups import PATTERNS
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.constraints.presence import Presence, with_patterns
from evenhand.constraints.small_slices import check_slices
from evenhand.data.tables.absence import with_mark
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import FrameTable, PartyTable, SeenTable, StreamedTable, open_table
from evenhand.data.tables.reference import Reference
from evenhand.data.tables.twins import twins
from evenhand.data.tables.unencoded import UnencodedColumns
from evenhand.errors import DataError, JobError, ProtocolError
from evenhand.jobs.ledger import Ledger, Limits, data_name
from evenhand.jobs.quality import QualityRows, check_measurable, measurable
from evenhand.jobs.tables import (
    Classes,
    Labels,
    NumericTargets,
    common_labels,
    complete_rows,
    held_out,
    hold_out,
    label_column,
    naming,
    parts_of,
    tell,
    weight_column,
)
from evenhand.jobs.vertical.extending import EarlierPart
from evenhand.jobs.vertical.file import (
    PartySection,
    VerticalJobSection,
    table_source,
)
from evenhand.jobs.vertical.learners import section_learner
from evenhand.models.learning.base import PartyLearner
from evenhand.printing import listed
from evenhand.privacy.randomised_response import SECRET_BYTES, AnswerKey
from evenhand.protocol.align import SentIds, id_sums
from evenhand.protocol.job import Job
from evenhand.runtime.files import PARTIAL, write_new
from evenhand.training.vertical_sources import EncodedColumns, HeldLabels, check_ids, rows_by_id


class TableRows:
    """A party's own rows.

    Parameters
    ----------
    section
        The job's settings for held-out rows, scaling and label privacy.
    base
        Folder that relative paths start from.
    trained
        The job to train.
    text_ids
        Whether ids of a CSV file are text.
    limits
        The most ε that the party's policy lets its labels spend.
    earlier
        The party's part of the run that the job extends, if it was in it.

    Attributes
    ----------
    seen
        State of the table when it was read.
    table
        The party's table; None once it is encoded.
    size
        Number of rows of the table.
    index
        Ids of the common rows that the party has, in order.
    there
        Which of the common rows the party has.
    test
        Which of the common rows are held out.
    encoder, matrix
        The encoder, fitted on the training rows, and all rows encoded.
    reference
        What the party keeps of its training columns, to notice new rows that are unlike them.
    """

    index: pd.Index
    there: Booleans
    test: Booleans
    encoder: PartyEncoder
    matrix: Matrix
    reference: Reference
    seen: SeenTable

    def __init__(
        self,
        party: PartySection,
        section: VerticalJobSection,
        base: Path,
        trained: Job,
        *,
        text_ids: bool = False,
        limits: Limits | None = None,
        earlier: EarlierPart | None = None,
    ) -> None:
        self.party, self._section, self._base, self._trained = party, section, base, trained
        self._text_ids, self._limits = text_ids, limits or Limits()
        self.earlier = earlier
        self.owner = f"party {party.name!r}"
        self.table: PartyTable | None = None
        self.size = 0
        self._held: QualityRows | None = None
        self._presence: Presence | None = None
        self._labels: HeldLabels | None = None

    def look(self) -> None:
        """Record the state of the table before reading it."""
        with naming(self.owner):
            self.seen = SeenTable.of(table_source(self.party, self._base))

    def open(self) -> PartyTable:
        """Read the table once; return it."""
        if self.table is None:
            table = open_party(self.party, self._base)
            self.table = table.with_text_ids() if self._text_ids and isinstance(table, FrameTable) else table
            self.size = len(table.known)
        return self.table

    # -- data for the party's steps

    def ids(self) -> pd.Index:
        if self.table is None:
            self.look()
        found = self.open().known.index
        with naming(self.owner):
            check_ids(found, self.party.name)
        return found

    def unaligned(self, problem: str, unmatched: Integers) -> DataError:
        return _unaligned(problem, f"; {len(unmatched):,} are of {self.party.name}")

    def take(self, places: Integers, held_out: Booleans | None = None) -> int:
        self.there = places >= 0
        self.table = self.open().taken(places[self.there])
        self.index = self.table.known.index
        if held_out is None:
            self.test = hold_out(self.index, self._section)
        else:
            self.test = held_out
            self._check_held_out()
        return int((~self.test).sum())

    def held_out(self) -> Booleans:
        return self.test

    def _check_held_out(self) -> None:
        """Refuse held-out rows that are not those of the job, where the party can work them out from its own ids."""
        own = self.test[self.there]
        by_id = held_out(self.index, self._section.test_fraction, self._section.seed) if own.any() else own
        if not np.array_equal(own, by_id):
            raise ProtocolError(
                f"{self.owner} is told that other rows are held out than the job's test_fraction and seed say; refused"
            )

    def labels(self, presence: Presence | None = None) -> HeldLabels:
        if self._labels is None:
            self._presence = presence
            held = self.held.some(~self.test)
            key = self._answer_key(held.names)
            self._labels = HeldLabels(LabelledRows(held.labels, held.compared, sample_weight=held.sample_weight), key)
        return self._labels

    def _answer_key(self, names: Labels | Classes | NumericTargets) -> AnswerKey | None:
        """Return what randomised responses are drawn from: the label's secret file, or in a simulation the job's seed.

        Draws are recorded in the party's ledger before any answer leaves.
        """
        asked, label, seed = self._section.label_privacy, self.party.label, self._section.seed
        if asked is None:
            return None
        ids = self.index[~self.test]
        if label is None or label.secret is None:
            return AnswerKey.from_seed(seed, ids)
        assert isinstance(names, Labels)
        secret = kept_secret(self._base / Path(label.secret).expanduser())
        values = str(names.negative), str(names.positive)
        # All that the draws depend on. Ids that are read as numbers have other draws than ids that are read as text.
        kind, sums = id_sums(ids)
        read = f"{label.column} in ({', '.join(sorted(values))}), ids as {kind}"
        ledger, data = Ledger(self._base), data_name(self.party, self._base)
        drawn_at = {"label": ledger.draw("labels", data, read, asked.epsilon, self._limits)}
        for one in self.party.sensitive:
            if asked.groups is None:
                break
            question = f"{one}, beside {read}"
            drawn_at[f"group {one}"] = ledger.draw("groups", data, question, asked.groups, self._limits)
        # By what alignment goes by: whoever is one person there has one answer, however the id is written.
        people = [f"{one} {other}" for one, other in sums.tolist()]
        return AnswerKey(secret, people, label=read, values=values, drawn_at=drawn_at)

    def columns(self) -> EncodedColumns:
        with naming(self.owner):
            own, training = self.open(), ~self.test[self.there]
            lacks = bool((~self.there & ~self.test).any())
            if self.earlier is not None:
                self.earlier = self.earlier.marking_absence() if lacks else self.earlier
                encoder = self.earlier.encoder
                if isinstance(own, (FrameTable, StreamedTable)):
                    self.earlier.check_columns(own.features, self.owner)
                matrix = own.transform(encoder)
            else:
                encoder, matrix = encoded_rows(own, training, self._section, self.party, self._trained, self.learner)
                if lacks:
                    encoder, matrix = encoder.marking_absence(), with_mark(matrix)
            self.encoder, self.matrix = encoder, encoder.spread(matrix, self.there)
        tell(self.owner, self.encoder.remarks)
        if self.party.sensitive:
            groups = self.party.grouping.groups(self.open().known[self.party.sensitive])
            tell(self.owner, twins(self.open().feature_columns(), groups))
        self.reference = Reference.of(self.open().feature_columns(), training)
        # The raw table is released as soon as it is encoded.
        self.table = None
        with naming(self.owner):
            signs = self.encoder.signs
        return EncodedColumns(
            _training_rows(self.matrix, self.test),
            self.encoder.categorical,
            weights=None if self.earlier is None else self.earlier.weights,
            signs=signs,
            marks_absence=self.encoder.marks_absence,
            learner=self.learner,
        )

    @cached_property
    def learner(self) -> PartyLearner | None:
        """The model of the party's own choice, if the job lets each party choose."""
        return party_learner(self.party, self._trained)

    @property
    def held(self) -> QualityRows:
        """Labels and groups of all common rows; only at the label holder."""
        if self._held is None:
            with naming(self.owner):
                found = held_labels(self.open(), self.party, self.test, self._trained, self._presence)
            # Copy the groups: a view would keep the whole table in memory.
            groups = None if found.groups is None else found.groups.reset_index(drop=True).copy()
            self._held = replace(found, groups=groups)
        return self._held

    @property
    def asks_for_test_rows(self) -> bool:
        """Whether the job file asks for held-out rows, or for none."""
        return self._section.asks_for_test_rows

    def labelled(self) -> dict[str, QualityRows]:
        """Return the rows of each non-empty part, to measure quality on."""
        found = {name: self.held.some(part) for name, part in parts_of(self.test).items()}
        return measurable(found, self._section.asks_for_test_rows)


def party_learner(party: PartySection, trained: Job) -> PartyLearner | None:
    """Return the learner that a party's section names; refuse one where the job's solver takes none."""
    if trained.model != "own":
        if party.model is not None:
            raise JobError(
                f"party {party.name!r} names a model of its own, but the job's solver is {trained.solver!r}; choose "
                "solver 'learners' in the job, or remove the key model"
            )
        return None
    return None if party.model is None else section_learner(party.model, f"party.{party.name}.model")


def encoded_rows(
    table: PartyTable,
    training: Booleans,
    section: VerticalJobSection,
    party: PartySection,
    trained: Job,
    learner: PartyLearner | None,
) -> tuple[PartyEncoder, Matrix]:
    """Encode a party's rows as its model needs them."""
    encoding, rules = None if learner is None else learner.encoding, section.to_rules(party, trained)
    if encoding == "raw":
        if not isinstance(table, FrameTable):
            raise DataError("its model takes raw columns, which tables in CSV format and databases have; give one")
        frame = table.known[list(table.features)]
        encoder = UnencodedColumns().fit(frame)
        return encoder, encoder.transform(frame)
    if encoding == "curves":
        rules = replace(rules, auto_numbers="curves")
    return table.encode(training, section.scale, trained.model == "trees" or encoding == "as_is", rules)


class ServerRows:
    """The server's copy of the label holder's table; it keeps only ids, labels and groups.

    Rows are matched by id: the copy must have the same ids, in any order.
    """

    def __init__(self, rows: TableRows) -> None:
        self._rows = rows

    def unaligned(self, problem: str) -> DataError:
        return _unaligned(problem)

    def labels(self, sent: SentIds, presence: Presence | None = None) -> HeldLabels:
        rows = self._rows
        table = rows.open()
        with naming(rows.owner):
            check_ids(table.known.index, rows.party.name)
            places = rows_by_id(table.known.index, sent, rows.party.name)
        del table
        rows.take(places)
        found = rows.labels(presence)
        with naming(rows.owner):
            self.measured = rows.labelled()
            check_measurable(self.measured)
        self.test = rows.test
        del self._rows
        return found

    def held_out(self) -> Booleans:
        return self.test


def _unaligned(problem: str, more: str = "") -> DataError:
    """Return an alignment error that counts ids without naming any, with advice on the job's keys."""
    advice = "; if ids of a CSV file are text, set text_ids = true in [job]" if "different kinds" in problem else ""
    return DataError(f"the rows cannot be aligned: {problem}{more}{advice}")


def open_party(party: PartySection, base: Path) -> PartyTable:
    """Open a party's table; label and sensitive columns are features only if they are named."""
    label = [] if party.label is None else [party.label.column]
    weight = [] if party.weight is None else [party.weight]
    with naming(f"party {party.name!r}"):
        table = open_table(table_source(party, base), party.columns, [*label, *party.sensitive, *weight])
        for column in party.sensitive:
            if column not in table.known.columns:
                raise DataError(f"there is no sensitive column {column!r}; the table has {listed(table.names)}")
        _check_named(party, table)
        if party.incomplete == "drop" and party.label is not None:
            table = _complete(party, party.label.column, table)
    return table


def _check_named(party: PartySection, table: PartyTable) -> None:
    """Refuse rules for columns that do not exist."""
    for key in ("types", "missing", "numbers", "monotone"):
        given = getattr(party, key)
        for name in given if isinstance(given, Mapping) else ():
            if name not in table.names:
                raise DataError(f"{key} names {name!r}, which is not a column; the table has {listed(table.names)}")


def _complete(party: PartySection, label: str, table: PartyTable) -> PartyTable:
    """Return the rows with a label and groups; say how many are dropped."""
    whole = complete_rows(table.known, [label, *party.sensitive], f"party {party.name!r}")
    return table if whole.all() else table.taken(np.flatnonzero(whole))


def held_labels(
    table: PartyTable, party: PartySection, test: Booleans, job: Job, presence: Presence | None = None
) -> QualityRows:
    """Return the label holder's labels and groups, and who else has the rows; refuse rows that cannot be trained on."""
    assert party.label is not None
    values = label_column(table.known, party.label, table.names)
    labels = common_labels({party.name: values}, party.label, job)
    signs = labels.signs(values)
    sensitive = party.grouping.groups(table.known[party.sensitive]) if party.sensitive else None
    if isinstance(labels, NumericTargets):
        check_targets(job.loss, signs[~test])
    elif isinstance(labels, Classes):
        labels.require_rows(signs[~test])
    elif len(set(signs[~test])) < 2:
        raise DataError("the training rows all have one label; hold out fewer test rows, or choose another seed")
    check_attribute(job.cut_by, party.sensitive)
    frame = with_patterns(job.asked, signs, groups_frame(sensitive, len(signs)), presence, ~test)
    check_slices(job.asked, signs[~test], frame[~test])
    people = None if party.weight is None else weight_column(table.known, party.weight, table.names)
    if people is not None and not people[~test].any():
        raise DataError(f"weight column {party.weight!r} is zero in all training rows")
    return QualityRows(
        signs,
        sensitive,
        sample_weight=people,
        names=labels,
        presence=None if presence is None else pd.DataFrame(dict(presence)),
        patterns=frame.get(PATTERNS),
    )


def _training_rows(matrix: Matrix, test: Booleans) -> Matrix:
    """Return the training rows in column-major order, which linear models use without another copy."""
    if not test.any():
        return matrix
    places = np.flatnonzero(~test)
    if isinstance(matrix, pd.DataFrame):
        return matrix.iloc[places]
    return matrix[places] if sp.issparse(matrix) else np.take(matrix.T, places, axis=1).T


# -- the label holder's secret, from which randomised responses are drawn


def kept_secret(path: Path) -> bytes:
    """Return the secret from a file, which is created if needed.

    Keep the file for as long as there are runs on the same labels.
    """
    try:
        if not path.exists():
            _make(path)
        found = path.read_bytes()
    except OSError as error:
        raise JobError(f"cannot read or create {path}, the secret file of the labels: {error.strerror}") from error
    if len(found) != SECRET_BYTES:
        raise JobError(f"{path} has {len(found)} bytes, but a secret has {SECRET_BYTES}; name another file")
    return found


def _make(path: Path) -> None:
    """Create the file atomically: a party and the server beside it may both create it."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}{PARTIAL}")
    try:
        write_new(temporary, secrets.token_bytes(SECRET_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
