"""Why a run ended, from everybody's endings: the cause names the participant that is missing or has stopped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import EvenhandError, LostError, ProtocolError, RunError, StoppedError
from evenhand.jobs.federation.endings import Cause, Ending, cause_of, ending_of, read_cause, read_ending
from evenhand.protocol.roles import SERVER

PARTIES = ["bank", "shop", "phone"]
STOPPED = ending_of(StoppedError("the run was stopped from outside"))


def lost(*missing: str) -> Ending:
    return ending_of(LostError("not heard from", missing))


@pytest.mark.parametrize(
    ("error", "endings", "says", "names"),
    [
        pytest.param(
            StoppedError(),
            {"bank": STOPPED, "phone": STOPPED},
            "shop is missing: its process ended without a word",
            ("shop",),
            id="its process was killed, and FLARE stops all others",
        ),
        pytest.param(
            LostError("shop has not been heard from for 120 seconds", ["shop"]),
            {"bank": lost("shop"), "phone": lost("shop")},
            "shop is missing: not heard from by bank, phone and the server",
            ("shop",),
            id="its machine was cut off",
        ),
        pytest.param(
            LostError("shop has not been heard from for 120 seconds", ["shop"]),
            {"bank": lost("shop"), "phone": STOPPED, "shop": lost(SERVER, "bank", "phone")},
            "shop is missing: not heard from by bank and the server",
            ("shop",),
            id="its line healed just then, and it misses everybody",
        ),
        pytest.param(
            StoppedError(),
            {"bank": lost("shop"), "phone": STOPPED},
            "shop is missing: not heard from by bank",
            ("shop",),
            id="one notices first, and the server stops everybody",
        ),
        pytest.param(
            StoppedError(),
            {"phone": ending_of(RunError("its table: row 7 is 'Ann'")), "bank": STOPPED, "shop": STOPPED},
            "phone: it stopped (RunError); see the log on its own console",
            ("phone",),
            id="one has stopped by an error of its own",
        ),
        pytest.param(
            StoppedError(),
            {"phone": ending_of(ValueError("row 7")), "bank": lost("phone")},
            "phone: it stopped (error); see the log on its own console",
            ("phone",),
            id="an error that is none of ours",
        ),
        pytest.param(
            RunError("phone: 600 rounds are more than its 500"),
            dict.fromkeys(PARTIES, STOPPED),
            "phone: 600 rounds are more than its 500",
            ("phone",),
            id="one has refused the terms",
        ),
        pytest.param(
            ProtocolError("bank sends sums and points of different numbers"),
            {},
            "bank sends sums and points of different numbers",
            (),
            id="the server has refused a message",
        ),
        pytest.param(
            StoppedError(), dict.fromkeys(PARTIES, STOPPED), "the job was aborted, or the server was stopped", ()
        ),
        pytest.param(StoppedError(), {}, "the job was aborted, or the server was stopped", (), id="nobody answers"),
    ],
)
def test_the_cause_names_who_it_was(
    error: EvenhandError, endings: dict[str, Ending], says: str, names: tuple[str, ...]
) -> None:
    cause = cause_of(error, endings, PARTIES)
    assert cause.says.startswith(says)
    assert cause.names == names
    assert cause.again == (isinstance(error, LostError) and all(one.lost for one in endings.values()))


def test_an_ending_says_nothing_of_a_row() -> None:
    for error in (RunError("row 7 is 'Ann'"), ValueError("row 7 is 'Ann'"), LostError("row 7 is 'Ann'")):
        assert "Ann" not in ending_of(error).to_bytes().decode()


def test_endings_and_causes_survive_the_line() -> None:
    ending, cause = lost("shop", SERVER), Cause("shop is missing", True, ("shop",))
    assert read_ending(ending.to_bytes(), [SERVER, *PARTIES]) == ending._replace(missing=(SERVER, "shop"))
    assert read_cause(cause.to_bytes(), PARTIES) == cause


@given(st.binary(max_size=200))
def test_what_is_no_ending_is_refused(content: bytes) -> None:
    for read in (read_ending, read_cause):
        found = read(content, PARTIES)
        assert found is None or isinstance(found.says, str)


@pytest.mark.parametrize(
    "content",
    [b'{"says": "x", "missing": ["nobody", 7, {}], "lost": 1}', b'{"says": "\\u001b[2J", "missing": [], "lost": true}'],
)
def test_strange_names_and_signs_are_dropped(content: bytes) -> None:
    found = read_ending(content, PARTIES)
    assert found is not None
    assert found.missing == ()
    assert found.says.isprintable()
    assert read_ending(b'{"says": 3, "missing": []}', PARTIES) is None
    assert read_ending(b"[" * 100_000, PARTIES) is None
