"""Database addresses of every kind people write: none shows its password, whatever goes wrong with it."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.tables import ID, SmallJob, files

from evenhand.data import TableSource, read_table
from evenhand.data.tables.addresses import Address, Scrubber
from evenhand.errors import DataError, EvenhandError, JobError
from evenhand.jobs.folder import job_content, record_in
from evenhand.jobs.vertical.runs import load_vertical_tables

NOWHERE = "127.0.0.1:1"
SECRETS = ("S3CRET", "s3cret", "S3%43RET", "S3CR", "CRET")


class Kind(NamedTuple):
    """An address, what is shown of it, and what its variable `P` holds."""

    written: str
    shown: str
    value: str = "S3CRET-value"


KINDS = [
    # Well formed, with the password where it belongs.
    Kind(f"postgresql://u:S3CRET@{NOWHERE}/db", f"postgresql://u:***@{NOWHERE}/db"),
    Kind(f"postgres://u:S3CRET@{NOWHERE}/db", f"postgres://u:***@{NOWHERE}/db"),
    Kind(f"postgresql://:S3CRET@{NOWHERE}/db", f"postgresql://:***@{NOWHERE}/db"),
    Kind(f"postgresql://u:S3%43RET@{NOWHERE}/db", f"postgresql://u:***@{NOWHERE}/db"),
    Kind(f"postgresql://u:a:S3CRET@{NOWHERE}/db", f"postgresql://u:***@{NOWHERE}/db"),
    Kind("postgresql://u:S3CRET@[::1]:1/db", "postgresql://u:***@[::1]:1/db"),
    Kind("postgresql://u:S3CRET@127.0.0.1:1,127.0.0.2:1/db", "postgresql://u:***@127.0.0.1:1,127.0.0.2:1/db"),
    Kind(f"postgresql://u%40corp:S3CRET@{NOWHERE}/db", f"postgresql://u%40corp:***@{NOWHERE}/db"),
    # As an option, by any name.
    Kind(f"postgresql://{NOWHERE}/db?user=u&password=S3CRET", f"postgresql://{NOWHERE}/db?user=u&password=***"),
    Kind(f"postgresql://{NOWHERE}/db?sslpassword=S3CRET", f"postgresql://{NOWHERE}/db?sslpassword=***"),
    Kind(f"postgresql://{NOWHERE}/db?pass%77ord=S3CRET", f"postgresql://{NOWHERE}/db?pass%77ord=***"),
    Kind(f"postgresql://{NOWHERE}/db?PASSWORD=S3CRET", f"postgresql://{NOWHERE}/db?PASSWORD=***"),
    Kind(f"postgresql://{NOWHERE}/db?pw=S3CRET&sslmode=disable", f"postgresql://{NOWHERE}/db?pw=***&sslmode=disable"),
    Kind(f"postgresql://{NOWHERE}/db?S3CRET", f"postgresql://{NOWHERE}/db?***"),
    Kind(f"postgresql://{NOWHERE}/db?user=u:S3CRET", f"postgresql://{NOWHERE}/db?user=***"),
    # Not well formed: where the password is cannot be known.
    Kind(f"postgresql://u:S3CRET@x@{NOWHERE}/db", "postgresql://***"),
    Kind(f"postgresql://u:S3CRET/x?y@{NOWHERE}/db", "postgresql://***"),
    Kind(f"postgresql://u:x#S3CRET@{NOWHERE}/db", "postgresql://***"),
    Kind(f"postgresql://u:x S3CRET@{NOWHERE}/db", "postgresql://***"),
    Kind(f"postgresql://u:x@{NOWHERE}/db?password=y@S3CRET", "postgresql://***"),
    Kind("postgresql://u:S3CRET/host", "postgresql://***"),
    Kind("postgresql://u:S3CRET", "postgresql://***"),
    Kind(f"postgresql://u;S3CRET@{NOWHERE}/db", "postgresql://***"),
    Kind(f"postgresql://u%3AS3CRET@{NOWHERE}/db", "postgresql://***"),
    Kind("postgresql:/u:S3CRET@h/db", "postgresql:***"),
    Kind("postgresql:u:S3CRET@h/db", "postgresql:***"),
    Kind("u:S3CRET@h/db", "***"),
    Kind("S3CRET", "***"),
    Kind("host=h password='S3CRET' user=u", "***"),
    Kind("mysql://u:S3CRET@h/db", "mysql://u:***@h/db"),
    Kind("strange-S3CRET://u:x@h/db", "***"),
    Kind("sqlite://u:S3CRET@h/db", "sqlite://u:***@h/db"),
    Kind("sqlite:///u:S3CRET@h/db", "sqlite:///***"),
    Kind("sqlite:///x.db?key=S3CRET", "sqlite:///***"),
    # With a variable, which is shown by its name wherever it stands.
    *(
        Kind(written, written)
        for written in (
            f"postgresql://u:${{P}}@{NOWHERE}/db",
            f"postgresql://${{P}}@{NOWHERE}/db",
            f"postgresql://{NOWHERE}/${{P}}",
            "postgresql://u:${P}/db",
            "postgresql://${P}:1/db",
            f"postgresql://{NOWHERE}/db?pw=${{P}}",
            f"postgresql://{NOWHERE}/db?user=${{P}}",
            f"postgresql://u:${{P}}${{P}}@{NOWHERE}/db",
            "sqlite:///${P}",
            "sqlite:///folder/${P}.db",
            "${P}",
        )
    ),
    Kind("${P}@host/db", "***"),
    Kind("${P}://u@h", "***"),
    Kind(f"postgresql://u:pre-S3CRET-${{P}}@{NOWHERE}/db", f"postgresql://u:***@{NOWHERE}/db"),
    # With a value that is no word.
    Kind(f"postgresql://u:${{P}}@{NOWHERE}/db", f"postgresql://u:${{P}}@{NOWHERE}/db", "a@S3CRET/b?c#d e"),
    Kind(f"postgresql://u:${{P}}@{NOWHERE}/db", f"postgresql://u:${{P}}@{NOWHERE}/db", "S3CRET%zz\udc80"),
    Kind("${P}", "${P}", f"postgresql://u:S3CRET@{NOWHERE}/db"),
    Kind("${P}", "${P}", "postgresql://u:S3CRET/h"),
    Kind("${P}", "${P}", "sqlite:///S3CRET.db"),
    Kind("sqlite:///${P}", "sqlite:///${P}", "/S3CRET\0.db"),
    Kind(f"postgresql://${{P}}@{NOWHERE}/db", f"postgresql://${{P}}@{NOWHERE}/db", "S3CRET" * 20),
]


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind.written} {kind.value[:20]!a}")
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kind:
    found: Kind = request.param
    if "\0" not in found.value:
        monkeypatch.setenv("P", found.value)
    return found


def assert_no_secret(text: str) -> None:
    assert not [secret for secret in SECRETS if secret in text], text


def everything(error: BaseException) -> str:
    """Whatever could be printed of an error: its traceback with all that hangs on it, shown or suppressed."""
    found: list[str] = []
    rest: list[BaseException] = [error]
    for one in rest:
        found += [*traceback.format_exception(one), repr(one), repr(vars(one))]
        rest += [more for more in (one.__cause__, one.__context__) if more is not None]
    return "".join(found)


def variables(error: BaseException) -> str:
    """What the functions that read tables held when the error came."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if "tables" in frame.f_code.co_filename]
    assert frames
    return " ".join(repr(frame.f_locals) for frame in frames)


def test_there_are_enough_kinds() -> None:
    assert len(KINDS) >= 26


def test_what_is_shown(kind: Kind) -> None:
    address = Address(kind.written)
    assert str(address) == f"{address}" == kind.shown
    assert repr(address) == f"Address({kind.shown!r})"
    source = TableSource(database=kind.written, sql="select 1")
    assert source.describe() == kind.shown
    assert_no_secret(f"{source} {source!r} {address!r}")


def test_reading_from_it_shows_nothing(kind: Kind) -> None:
    with pytest.raises(EvenhandError) as caught:
        read_table(TableSource(database=kind.written, sql="select 1"))
    assert kind.shown in str(caught.value)
    assert_no_secret(everything(caught.value) + variables(caught.value))


def test_a_filled_address_shows_nothing_either(kind: Kind, tmp_path: Path) -> None:
    if "\0" in kind.value:
        return
    filled = Address(kind.written, tmp_path).fill_in()
    assert str(filled) == kind.shown
    assert_no_secret(f"{filled} {filled!r}")
    said = filled.reveal()
    if "${P}" in kind.written:
        said += f" '{kind.value}' {kind.value.lower()} {kind.value[:-1]}"
    assert_no_secret(filled.scrub(f"could not reach {said}"))


def test_neither_jobs_nor_run_folders_show_them(tmp_path: Path) -> None:
    small = SmallJob(tmp_path)
    asked = [{"name": f"k{k}", "id": ID, "database": one.written, "sql": "select 1"} for k, one in enumerate(KINDS)]
    small.content["party"] = small.content["party"][:1] + asked
    job = small.read()
    assert_no_secret(f"{job} {job!r} {job.model_dump()} {job.model_dump_json()}")
    with record_in(small.folder / "run", job_content(job), small.folder, False) as folder:
        assert [party["database"] for party in folder.description["party"][1:]] == [kind.shown for kind in KINDS]
    for name, content in files(small.folder / "run").items():
        assert_no_secret(f"{name} {content!r}")


PLACES: dict[str, Any] = {
    "table": lambda small, written: small.party("shop").update(table=written),
    "role": lambda small, written: small.party("shop").update(role=written),
    "name": lambda small, written: small.party("shop").update(name=written),
    "solver": lambda small, written: small.content["job"].update(solver=written),
    "split": lambda small, written: small.content["job"].update(split=written),
    "kind": lambda small, written: small.content["job"]["constraint"].update(kind=written),
    "key": lambda small, written: small.content["job"].update({written: 1}),
    "list": lambda small, written: small.party("shop").update(database=[written]),
    "label": lambda small, written: small.party("shop").update(label=written),
    "options": lambda small, written: small.content["job"]["options"].update(step=written),
}


@pytest.mark.parametrize("place", PLACES)
def test_an_address_in_the_wrong_place_is_not_shown(place: str, tmp_path: Path) -> None:
    for written in [kind.written for kind in KINDS if "S3CRET" in kind.written and ":" in kind.written]:
        small = SmallJob(tmp_path)
        PLACES[place](small, written)
        with pytest.raises(EvenhandError) as caught:
            # What might be a file's name is looked for.
            load_vertical_tables(small.read(), small.folder)
        assert isinstance(caught.value, JobError) or (place == "table" and isinstance(caught.value, DataError))
        assert_no_secret(everything(caught.value))


# -- taking secrets out of what others say


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("cannot use hunter2-and-more here", "cannot use *** here"),
        ("cannot use HUNTER2-AND-MORE here", "cannot use *** here"),
        ('role "hunter2-an" does not exist', 'role "***" does not exist'),
        ("hunter''2 and nd-more", "hunter''2 and nd-more"),
        ("user u of h failed", "user u of h failed"),
        ("a table of 12 rows", "a table of 12 rows"),
    ],
)
def test_scrubbing(said: str, left: str) -> None:
    assert Scrubber(["postgresql://u:hunter2-and-more@h/db"], "postgresql://u:***@h/db")(said) == left


def test_short_secrets_count_as_words_only() -> None:
    scrub = Scrubber(["postgresql://u:ab@h/db"], "postgresql://u:***@h/db")
    assert scrub("unable to log in with ab, 'ab' or u:ab@h") == "unable to log in with ***, '***' or u:***@h"


def test_percent_encoded_forms_are_known_both_ways() -> None:
    scrub = Scrubber(["postgresql://u:p%40ss@h/db", "w/rd"], "postgresql://u:${P}@h/db")
    assert scrub("'p@ss' or 'p%40ss' is wrong") == "'***' or '***' is wrong"


def test_addresses_are_compared_by_what_was_written() -> None:
    address = Address("postgresql://u:a@h/db")
    assert address == Address("postgresql://u:a@h/db")
    assert address != Address("postgresql://u:b@h/db")
    assert len({address, Address("postgresql://u:a@h/db"), address.based(Path("x"))}) == 2


def test_variables_are_filled_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONE", "1")
    assert Address("sqlite:///${ONE}/$TWO/${ONE}").fill_in().reveal() == "sqlite:///1/$TWO/1"
    assert Address("sqlite:///${ONE}", tmp_path).fill_in().reveal() == f"sqlite:///{tmp_path}/1"
    monkeypatch.delenv("ONE")
    with pytest.raises(DataError, match=r"u:\$\{ONE\}@h needs the environment variable ONE"):
        Address("postgresql://u:${ONE}@h").fill_in()


@pytest.mark.parametrize("address", [5, b"postgresql://u:S3CRET@h", ["postgresql://u:S3CRET@h"]])
def test_what_is_no_text_is_refused(address: Any) -> None:
    with pytest.raises(DataError, match="a database address is text") as caught:
        TableSource(database=address, sql="select 1")
    assert_no_secret(str(caught.value))
