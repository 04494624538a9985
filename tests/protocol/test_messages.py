"""Messages: what does not fit its schema is refused and leaves the receiving role as it was; bytes are arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.problems import deal, small

from evenhand.constraints import EqualOpportunity
from evenhand.errors import ProtocolError
from evenhand.protocol.disclosure import PARTICIPANT_TO_SERVER
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import Role
from evenhand.solvers.announcing import vocabularies
from evenhand.vertical.messages import (
    COMBINED_SCORES,
    GRADIENT_NORM,
    SCORES,
    SPECTRUM,
    VOCABULARY,
    WEIGHTED_DERIVATIVE,
)
from evenhand_reproductions.in_memory import Holdings

ROWS = 12
NOTE = Schema(
    "note",
    {"size": Field("i8"), "values": Field("f8", ("rows", 2))},
    direction=PARTICIPANT_TO_SERVER,
    reveals="Nothing: it is a test.",
)


def _note(**changes: Any) -> Message:
    body = {"size": np.array(3), "values": np.ones((ROWS, 2))} | changes
    return Message("a", "b", "note", {name: array for name, array in body.items() if array is not None})


def test_a_good_message_passes_and_counts_its_bytes() -> None:
    message = NOTE.message("a", "b", size=3, values=np.ones((ROWS, 2)))
    NOTE.check(message, {"rows": ROWS})
    assert message.nbytes == 8 + 8 * ROWS * 2
    assert (message.integer("size"), message.number("size"), message["values"].shape) == (3, 3.0, (ROWS, 2))


def test_values_are_brought_to_the_schemas_types() -> None:
    message = NOTE.message("a", "b", size=np.int32(3), values=np.ones((ROWS, 2), dtype=np.float32))
    NOTE.check(message, {"rows": ROWS})


def test_what_is_equal_to_what_is_expected_passes_as_what_is_the_same_does() -> None:
    """A machine may have two types of eight bytes; they are one to whoever counts bytes."""
    other = np.array(3, dtype=np.longlong)
    assert other.dtype == np.int64
    NOTE.check(_note(size=other), {"rows": ROWS})
    anything = Schema(
        "any", {"values": Field("f8", (None,))}, direction=PARTICIPANT_TO_SERVER, reveals="Nothing: it is a test."
    )
    for size in (0, 5):
        anything.check(anything.message("a", "b", values=np.ones(size)), {})
    with pytest.raises(ProtocolError, match="not finite"):
        anything.check(anything.message("a", "b", values=[1.0, np.nan]), {})


def test_a_whole_number_that_messages_share_cannot_be_written_to() -> None:
    values = np.ones((ROWS, 2))
    first, second = (NOTE.message("a", other, size=3, values=values) for other in ("b", "c"))
    with pytest.raises(ValueError, match="read-only"):
        first["size"][...] = 4
    assert second.integer("size") == 3
    assert NOTE.message("a", "b", size=True, values=values)["size"].dtype == np.int64


@pytest.mark.parametrize("size", [2**63, -(2**63) - 1, 10**30])
def test_a_whole_number_that_eight_bytes_cannot_hold_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match="note: size cannot be"):
        NOTE.message("a", "b", size=size, values=np.ones((ROWS, 2)))


def test_a_message_cannot_be_made_with_wrong_fields() -> None:
    with pytest.raises(ProtocolError, match=r"note takes \['size', 'values'\], was given \['size'\]"):
        NOTE.message("a", "b", size=3)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"size": None}, "fields are"),
        ({"more": np.array(1)}, "fields are"),
        ({"size": np.array(3.0)}, "size is float64"),
        ({"values": np.ones((ROWS, 2), dtype=np.float32)}, "values is float32"),
        ({"values": np.ones((ROWS, 2), dtype=">f8")}, "values is >f8"),
        ({"values": np.ones((ROWS, 2), dtype=object)}, "values is object"),
        ({"values": np.ones((ROWS, 3))}, r"of shape \(12, 3\)"),
        ({"values": np.ones((ROWS - 1, 2))}, r"of shape \(11, 2\)"),
        ({"values": np.ones(ROWS)}, r"of shape \(12,\)"),
        ({"size": np.array([3])}, r"of shape \(1,\)"),
        ({"values": np.full((ROWS, 2), np.nan)}, "not finite"),
        ({"values": np.full((ROWS, 2), np.inf)}, "not finite"),
        ({"values": np.full((ROWS, 2), -np.inf)}, "not finite"),
        ({"values": np.tile([np.inf, -np.inf], (ROWS, 1))}, "not finite"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ProtocolError, match=told) as refusal:
        NOTE.check(_note(**changes), {"rows": ROWS})
    assert "'note' from a to b" in str(refusal.value)


@pytest.mark.parametrize("value", [3, [1.0], None, "text"])
def test_what_is_no_array_is_refused(value: Any) -> None:
    with pytest.raises(ProtocolError):
        NOTE.check(Message("a", "b", "note", {"size": value, "values": np.ones((ROWS, 2))}), {"rows": ROWS})


@pytest.mark.parametrize("odd", [None, 3, ["note"], {}, np.array(["note"]), b"note", object()])
def test_names_and_kinds_that_are_no_text_are_refused(odd: Any) -> None:
    good: list[Any] = ["a", "b", "note"]
    for place in range(3):
        with pytest.raises(ProtocolError, match="which is no text"):
            Message(*good[:place], odd, *good[place + 1 :], {})
    with pytest.raises(ProtocolError, match="no table of fields by name"):
        Message(*good, odd if not isinstance(odd, dict) else {1: np.array(3)})


def test_numpy_scalars_can_be_put_into_a_message_but_do_not_fit_a_schema() -> None:
    message = Message(np.str_("a"), "b", "note", {"size": np.int64(3), "values": np.ones((ROWS, 2))})
    assert (message.nbytes, message.integer("size")) == (8 + 8 * ROWS * 2, 3)
    with pytest.raises(ProtocolError, match="size is a int64, expected an array"):
        NOTE.check(message, {"rows": ROWS})


def test_an_array_of_a_kind_of_its_own_is_refused() -> None:
    masked = np.ma.masked_array(np.ones((ROWS, 2)), mask=True)
    with pytest.raises(ProtocolError, match="values is a MaskedArray"):
        NOTE.check(_note(values=masked), {"rows": ROWS})


@pytest.mark.parametrize("odd", ["three", None, [[1], [2, 3]], 2**70, {}, np.nan, 1j, object()])
def test_a_message_cannot_be_made_of_what_is_no_number(odd: Any) -> None:
    with pytest.raises(ProtocolError, match="note: size cannot be"):
        NOTE.message("a", "b", size=odd, values=np.ones((ROWS, 2)))


def test_numbers_whose_sum_overflows_are_refused_without_a_warning() -> None:
    """Each is finite; nothing a role works with is that large."""
    with pytest.raises(ProtocolError, match="not finite"):
        NOTE.check(_note(values=np.full((ROWS, 2), 1e308)), {"rows": ROWS})


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ProtocolError, match="unknown message kind 'note' from a"):
        VOCABULARY.check(_note(), {"rows": ROWS, "constraints": 1})


def test_every_schema_says_what_it_reveals() -> None:
    schemas = list(VOCABULARY)
    assert len({schema.kind for schema in schemas}) == len(schemas)
    assert all(len(schema.reveals) > 20 for schema in schemas)
    assert list(Vocabulary(NOTE)) == [NOTE]


# -- the roles of vertical training


def _roles() -> dict[str, Role]:
    problem = small(rows=ROWS)
    job = Job(solver="fairvfl", constraints=(EqualOpportunity(0.1),), options={"step": "auto"})
    parties_columns = deal(problem, [[0, 1], [2, 3]])
    server, parties = Holdings.of(job, parties_columns, problem.labels, problem.sensitive).roles()
    for role in parties:
        role.start()
    return {role.name: role for role in [server, *parties]}


def _scores(sender: str, receiver: str = "server") -> Message:
    body = {"scores": np.zeros(ROWS), "squared_norm": 0.0, "squared_move": 0.0}
    return SCORES.message(sender, receiver, round=0, sequence=1, **body)


def _combined(sender: str, receiver: str) -> Message:
    body = {"scores": np.zeros(ROWS), "multipliers": np.zeros((2, 1))}
    return COMBINED_SCORES.message(sender, receiver, round=1, last=0, step=0.1, sequence=1, **body)


def _weighted(sender: str, receiver: str) -> Message:
    return WEIGHTED_DERIVATIVE.message(sender, receiver, round=1, last=0, step=0.1, nu=np.ones(ROWS))


GOOD = {"server": _scores("p0"), "p0": _combined("server", "p0"), "p1": _weighted("server", "p1")}


def _same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(
        np.array_equal(left[name], right[name], equal_nan=np.asarray(left[name]).dtype.kind == "f") for name in left
    )


def _refused(role: Role, message: Message) -> None:
    """Refused with a ProtocolError, the role as it was, and able to go on with the good message."""
    before = role.snapshot()
    with pytest.raises(ProtocolError):
        role.receive(message)
    assert _same(before, role.snapshot())
    role.receive(GOOD[role.name])
    assert role.name == "server" or role.round == 1


def _changed(message: Message, **changes: Any) -> Message:
    body = {name: array for name, array in {**message.body, **changes}.items() if array is not None}
    return Message(message.sender, message.receiver, message.kind, body)


SPOIL: dict[str, Callable[[Message, str], Message]] = {
    "unknown kind": lambda message, field: Message(message.sender, message.receiver, "poem", message.body),
    "missing field": lambda message, field: _changed(message, **{field: None}),
    "extra field": lambda message, field: _changed(message, extra=np.array(1.0)),
    "wrong dtype": lambda message, field: _changed(message, **{field: message[field].astype(np.float32)}),
    "wrong shape": lambda message, field: _changed(message, **{field: message[field][:-1]}),
    "one dimension too many": lambda message, field: _changed(message, **{field: message[field][None]}),
    "not a number": lambda message, field: _changed(message, **{field: np.where(np.arange(ROWS) == 3, np.nan, 0.0)}),
    "infinite": lambda message, field: _changed(message, **{field: np.where(np.arange(ROWS) == 3, -np.inf, 0.0)}),
}


@pytest.mark.parametrize("spoil", SPOIL.values(), ids=SPOIL)
@pytest.mark.parametrize(("name", "field"), [("server", "scores"), ("p0", "scores"), ("p1", "nu")])
def test_a_role_refuses_a_spoiled_message_and_stays_as_it_was(name: str, field: str, spoil: Any) -> None:
    _refused(_roles()[name], spoil(GOOD[name], field))


def test_the_server_refuses_a_stranger() -> None:
    for message in (_scores("mallory"), GRADIENT_NORM.message("mallory", "server", squared_gradient=1.0)):
        _refused(_roles()["server"], message)


@pytest.mark.parametrize("name", ["p0", "p1"])
def test_a_party_refuses_everybody_but_the_server(name: str) -> None:
    good = GOOD[name]
    _refused(_roles()[name], Message("mallory", name, good.kind, good.body))


def test_a_party_refuses_the_message_of_the_other_kind_of_party() -> None:
    _refused(_roles()["p0"], _weighted("server", "p0"))
    _refused(_roles()["p1"], _combined("server", "p1"))


def test_a_party_refuses_what_parties_send() -> None:
    for name in ("p0", "p1"):
        _refused(_roles()[name], _scores("server", name))
        _refused(_roles()[name], SPECTRUM.message("server", name, squared_norm=1.0))


def test_the_server_refuses_what_only_servers_send() -> None:
    for message in (_weighted("p1", "server"), _combined("p0", "server")):
        _refused(_roles()["server"], message)


def test_the_server_refuses_a_gradient_norm_it_has_not_asked_for() -> None:
    _refused(_roles()["server"], GRADIENT_NORM.message("p0", "server", squared_gradient=0.0))


def test_an_active_party_refuses_scores_it_never_sent() -> None:
    good = GOOD["p0"]
    _refused(_roles()["p0"], _changed(good, sequence=np.array(7)))


def test_message_sizes_are_the_arithmetic_ones() -> None:
    assert GOOD["server"].nbytes == 8 * ROWS + 4 * 8
    assert GOOD["p0"].nbytes == 8 * ROWS + 4 * 8 + 2 * 8
    assert GOOD["p1"].nbytes == 8 * ROWS + 3 * 8
    assert SPECTRUM.message("p0", "server", squared_norm=1.0).nbytes == 8
    assert GRADIENT_NORM.message("p0", "server", squared_gradient=1.0).nbytes == 8


def test_many_numbers_of_two_bytes_are_finite_though_their_sum_is_not_one_of_them() -> None:
    schema = Schema("halves", {"x": Field("f2", ("rows",))}, direction=PARTICIPANT_TO_SERVER, reveals="Nothing.")
    schema.check(schema.message("a", "b", x=np.full(10_000, 60_000.0)), {"rows": 10_000})
    with pytest.raises(ProtocolError, match="not finite"):
        schema.check(schema.message("a", "b", x=np.array([1.0, np.inf])), {"rows": 2})


def test_a_kind_means_one_thing_wherever_it_is_said() -> None:
    """What a transcript says was sent is looked up by kind alone."""
    meanings: dict[str, set[str]] = {}
    for vocabulary in vocabularies():
        for schema in vocabulary:
            meanings.setdefault(schema.kind, set()).add(f"{schema.reveals} {schema.fields}")
    assert [kind for kind, found in meanings.items() if len(found) > 1] == []
