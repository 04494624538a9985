"""Files of a federation: the job, which all participants have, and each participant's own private file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import Field

from evenhand.errors import JobError, RunError
from evenhand.jobs.horizontal.file import HorizontalJobFile, check_agreed
from evenhand.jobs.label_keys import Plain, check_listed
from evenhand.jobs.ledger import Limits
from evenhand.jobs.parsing import Strict, key, once, parsed, read_toml
from evenhand.jobs.schema import CardSection, check_names, located
from evenhand.jobs.vertical.file import (
    PartySection,
    VerticalJobSection,
    check_extends,
    check_hidden,
    check_party,
    check_training,
)
from evenhand.printing import listed
from evenhand.protocol.job import Job, LostParty, Protection, check_experimental
from evenhand.protocol.policy import OwnPolicy, Questions
from evenhand.protocol.terms import Part
from evenhand.runtime.nvflare.kits import RESERVED
from evenhand.solvers.announcing import schemas
from evenhand.solvers.registry import VERTICAL
from evenhand.solvers.roles import trainings

# Names are used as host names and addresses.
_SITE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_RUN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}")
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_TABLE: Final = {"table", "database"}

PARTY_FILE: Final = "EVENHAND_PARTY_FILE"
"""Environment variable with the path of a site's own file; at the server, the file of the label holder."""
RUNS: Final = "EVENHAND_RUNS"
"""Environment variable with the folder of a site's runs."""
IDENTITY: Final = "EVENHAND_IDENTITY"
"""Environment variable with the folder of a site's identity; at the server, of the server's own."""
CHECKPOINT_SECONDS: Final = "EVENHAND_CHECKPOINT_SECONDS"
"""Environment variable of the server: minimum seconds between two checkpoints."""
LEASE_SECONDS: Final = "EVENHAND_LEASE_SECONDS"
"""Environment variable of the server: seconds after which a job ends that nobody follows."""


class FederationSection(Strict):
    """`[federation]`: the participants, and the address of the server."""

    name: str = key("Name of the federation.", "lending")
    server: str = key("Host name of the server.", "server.example")
    port: int = key("Port of the server.", 443, 8002, ge=1, le=65535)
    parties: list[str] = key("Names of all parties or clients.", ["bank", "shop"], min_length=1)


class FederationFile(Strict):
    """The file from which start-up kits are made."""

    federation: FederationSection


class MemberSection(Strict):
    """`[[party]]`: a party's name and role. Its table is in its own `party.toml`."""

    name: str = key("Name of the party, as in its start-up kit.", "bank")
    role: str = key(
        '`active`, `passive`, or `dealer`: a participant without data, for `protection = "dealer"`.',
        "active",
        "passive",
    )


class FederationJobSection(VerticalJobSection):
    """`[job]`: what to train and how."""

    text_ids: bool = key("Whether ids in CSV files are text even if they look like numbers.", True, False)
    values: bool = key(
        "Whether the server keeps the loss of each held-out row in its run folder, so that `evenhand value` can "
        "compare runs with and without a party. Every party must allow it (`values` in its policy).",
        True,
        False,
    )
    classes: list[Plain] | None = key(
        "All labels, if there are three or more, in the order of the model's scores; for linear models.",
        ["A", "B", "C"],
        None,
    )


class FederationJob(Strict):
    """A job that is submitted to a federation."""

    job: FederationJobSection = Field(default_factory=FederationJobSection)
    party: list[MemberSection] = Field(min_length=1)
    card: CardSection | None = None

    @once
    def to_job(self) -> Job:
        return self.job.as_job(classes=self.job.classes or ())

    def without(self, gone: Collection[str]) -> FederationJob:
        """Return the job without some parties."""
        return self.model_copy(update={"party": [one for one in self.party if one.name not in gone]})

    @property
    def parts(self) -> dict[str, Part]:
        """Role of each participant by name."""
        known: dict[str, Part] = {"active": "active", "dealer": "dealer"}
        return {one.name: known.get(one.role, "passive") for one in self.party}

    @property
    def parties(self) -> list[str]:
        """Names of the parties that have columns."""
        return [name for name, part in self.parts.items() if part != "dealer"]

    @property
    def crosses_trees(self) -> bool:
        """Whether a tree may split on columns of several parties, so that parties score rows together."""
        return self.job.options.get("interactions", "none") != "none"

    @property
    def holder(self) -> str:
        """Name of the label holder, the first active party. The server runs at its site, or at one it trusts."""
        return next(one.name for one in self.party if one.role == "active")


class ClientMember(Strict):
    """`[[client]]`: a client's name and its own bound. Its table is in its own `party.toml`."""

    name: str = key("Name of the client, as in its start-up kit.", "ghent")
    limit: float | None = key("Bound of this client's local constraint, in place of its ε or limit.", 0.6, None)


class ClientsJob(HorizontalJobFile):
    """A horizontal job that is submitted to a federation; it contains nothing about any client's table."""

    client: list[ClientMember] = Field(min_length=1)  # type: ignore[assignment]

    @property
    def parts(self) -> dict[str, Part]:
        return {one.name: "client" for one in self.client}


AnyJob: TypeAlias = FederationJob | ClientsJob


class OwnSection(PartySection):
    """`[party]`: the party's role, its table and the table's columns. A dealer has no table."""

    role: Literal["active", "passive", "client", "dealer"] = key(  # type: ignore[assignment]
        "Role of this participant. For a `client`, the job's `[data]` describes the columns.", "client", "passive"
    )


class PolicySection(Strict):
    """`[policy]`: the jobs that this party takes part in."""

    solvers: list[str] | None = key("Solvers that it accepts; by default all.", ["subspace"], None)
    most_rounds: int | None = key(
        "Most rounds over all runs on this party's table, whether resumed, extended or new; the ledger beside this "
        "file counts them. A job whose `max_rounds` is more than what is left is refused.",
        100,
        None,
        ge=1,
    )
    least_rows: int = key("Fewest common rows that it accepts.", 500, 0, ge=0)
    least_common: int = key(
        "Fewest of its own rows that the label holder must have too; with fewer, this party stops before it sends "
        "anything that follows from its columns. With private ids it also compares its ids with no shorter list. The "
        "job's own `least_common` is kept by the server, this one by the party.",
        1000,
        0,
        ge=0,
    )
    participants: list[str] | None = key("Participants that it accepts; by default all.", ["bank", "shop"], None)
    protected: bool = key("Whether it accepts only jobs with `[privacy]` noise and a stated ε.", True, False)
    most_epsilon: float | None = key(
        "Largest ε of all jobs on this party's data together; the ledger beside this file adds it up. Jobs across "
        "clients that state no ε are then refused.",
        4.0,
        None,
        gt=0.0,
    )
    values: bool = key(
        "Whether it takes part in jobs that measure what each party's data is worth (`values = true`). Such jobs train "
        "with several sets of parties, and their results tell how much this party's columns help.",
        True,
        False,
    )
    never_send: list[str] = key(
        "Kinds of messages that it never sends, under masks or encryption either; the run ends there.",
        ["combined-scores"],
        [],
    )
    columns: list[str] | None = key("Columns that a job across clients may use; by default all.", ["age", "ward"], None)
    protection: Protection = key("Weakest `protection` that it accepts.", "masked", "none")
    most_ids: int | None = key(
        "Most ids of another party that it compares its own with; if set, jobs without private ids are refused. "
        "By default ten times its own number, and at least 1,000.",
        1_000_000,
        None,
        ge=1,
    )
    questions: Questions | None = key(
        "People that it scores for `evenhand predict --remote`: `any` in its table, `trained` (the common rows of the "
        'run), or `none`. By default `trained` with `ids = "private"`, and `any` otherwise.',
        "trained",
        None,
    )
    most_asked: int | None = key(
        "Most people that may be asked for after one run, over all questions; the party counts.", 500, None, ge=0
    )
    least_summed: int | None = key(
        "Fewest participants in every combination of masked sums that this party was in, over all jobs on its data. By "
        "default, all such jobs must have the same participants.",
        3,
        None,
        ge=1,
    )
    lost_party: LostParty = key(
        '`end` refuses jobs that go on when a party is gone for good (`lost_party = "continue"`).', "end", "continue"
    )
    allow_experimental: bool = key(
        "Whether a `protection` that a known attack breaks counts for this policy's `protection`.", True, False
    )
    label_epsilon: float | None = key(
        "Largest ε of `label_privacy` that it accepts. Jobs without `label_privacy` are then refused.", 1.0, None
    )

    def to_policy(self, rounds_before: Callable[[], int] = lambda: 0) -> OwnPolicy:
        """Return the rules on terms and messages.

        Parameters
        ----------
        rounds_before
            Returns how many rounds the party's table took before.
        """
        return OwnPolicy(
            **self.model_dump(exclude={"columns", "values"}), rounds_before=rounds_before, trainings=trainings
        )

    @property
    def limits(self) -> Limits:
        """The most ε that all jobs on this party's data may spend together."""
        return Limits(self.label_epsilon, self.most_epsilon)

    def check_columns(self, wanted: Iterable[str]) -> None:
        """Refuse a horizontal job that uses columns which this client's policy does not allow."""
        if self.columns is not None and (others := [name for name in wanted if name not in self.columns]):
            raise RunError(f"the job asks for column {others[0]!r}, which this party's policy does not allow")


class PartyFile(Strict):
    """A participant's own file: its table, the table's columns, and its policy on jobs."""

    identity: str | None = key(
        "Folder with this participant's identity, made by `evenhand identity make`. A start-up kit's own goes first.",
        "identity",
        None,
    )
    party: OwnSection
    policy: PolicySection = Field(default_factory=PolicySection)


def read_federation(path: Path) -> FederationFile:
    return parsed(FederationFile, _check_federation, read_toml(path, "file of a federation"), path.name)


def parse_federation_job(content: dict[str, Any], where: str) -> AnyJob:
    kinds: dict[str, type[Strict]] = {"party": MemberSection, "client": ClientMember}
    for kind, member in kinds.items():
        sections = [one for one in content.get(kind) or () if isinstance(one, dict)]
        if any(_TABLE & one.keys() for one in sections):
            stay, own = member.model_fields, list(dict.fromkeys(name for one in sections for name in one))
            raise JobError(
                f"{where}: this job file is for evenhand train in one place, because its [[{kind}]] sections say where "
                "tables are. Between organisations the job only names the participants; each describes its table in a "
                f"party.toml of its own. Keep {listed(name for name in own if name in stay)} in each [[{kind}]], and "
                f"move its {listed((name for name in own if name not in stay), most=20)} to [party] of its party.toml"
            )
    section = content.get("job")
    if isinstance(section, dict) and section.get("split") == "horizontal":
        return parsed(ClientsJob, _check_clients_job, content, where)
    return parsed(FederationJob, _check_job, content, where)


def as_given(file: AnyJob | PartyFile) -> dict[str, Any]:
    """Return the keys of a job or party file that were given, as plain values.

    Defaults are left out: to give a key can mean more than its default does, as with `test_fraction`.
    """
    return file.model_dump(exclude_unset=True, exclude_none=True, mode="json")


def read_federation_job(path: Path) -> AnyJob:
    return parse_federation_job(read_toml(path), path.name)


def read_party(path: Path) -> PartyFile:
    return parsed(PartyFile, _check_own, read_toml(path, "party file"), path.name)


def run_place(runs: Path, run: str, *, at_server: bool = False) -> Path:
    """Return the folder of a run; refuse names that could lead outside the folder of runs.

    The server may run beside a party and use the same file, so its side of a run has another name.
    """
    if not _RUN.fullmatch(run):
        raise JobError(f"{run!r} cannot be the name of a run; use letters, digits and '-' only")
    return runs / (f"{run}-server" if at_server else run)


def site_name(name: str) -> str:
    """Check that a participant's name can be the name of its site; return it."""
    if not _SITE.fullmatch(name) or name in RESERVED:
        raise JobError(
            f"{name!r} cannot be the name of a site; between organisations a name has letters, digits, '-' and '_', "
            f"begins with a letter, and is not {', '.join(sorted(RESERVED))}"
        )
    return name


def _check_federation(file: FederationFile) -> None:
    found = file.federation
    check_names("party", found.parties)
    for name in [found.name, *found.parties]:
        site_name(name)
    if not _HOST.fullmatch(found.server) or found.server in found.parties:
        raise JobError(
            f"key federation.server is {found.server!r}; give the host name or address of the server's machine"
        )


def _check_job(job: FederationJob) -> None:
    check_names("party", [one.name for one in job.party])
    for number, one in enumerate(job.party):
        site_name(one.name)
        if one.role not in ("active", "passive", "dealer"):
            raise JobError(f'key party.{number}.role is {one.role!r}; choose "active", "passive" or "dealer"')
    if "active" not in job.parts.values():
        raise JobError('no party is active; give the party that holds the labels role = "active"')
    dealers = [one.name for one in job.party if one.role == "dealer"]
    if len(dealers) != (1 if job.job.protection == "dealer" else 0):
        raise JobError(
            f'{len(dealers)} parties have the role "dealer", and job.protection is {job.job.protection!r}; the level '
            '"dealer" needs exactly one, which no other participant controls, and other levels need none'
        )
    if job.job.runtime != "auto":
        raise JobError("key job.runtime is for runs in one process; remove it from a job between organisations")
    if job.job.classes is not None:
        check_listed(job.job.classes, "job.classes")
    trained = job.to_job()
    if job.job.values and trained.label_privacy is not None:
        raise JobError("key job.values needs true labels, and the job shares randomised responses only; remove one")
    if job.job.values and job.job.lost_party == "continue":
        raise JobError(
            'key job.values is for a stated set of parties, and lost_party = "continue" may train with fewer; set '
            'lost_party = "end"'
        )
    check_training(trained)
    check_hidden(job.job, trained, job.parts)
    check_extends(job.job, trained)
    if job.job.extends is not None:
        run_place(Path(), job.job.extends)
    if trained.missing_party == "absent" and job.job.protection in ("dealer", "encrypted"):
        raise JobError(
            f'missing_party = "absent" with protection = "{job.job.protection}": nobody knows what a party adds where '
            'it has no row, because its weights are in shares; use protection = "masked" or "none"'
        )
    _check_lost(job, trained)
    if trained.missing_party == "absent" and job.crosses_trees:
        raise JobError('missing_party = "absent" is not for trees that cross parties; remove `interactions`')
    if job.job.options.get("exchange", "scores") != "scores":
        raise JobError(
            'key job.options.exchange is "embedding", which is for runs in one process: an embedding tells its '
            "receiver nearly all of a party's columns, of training rows and of each new row, and masked sums of "
            'embeddings tell those with two values; between organisations set exchange = "scores"'
        )


def _check_lost(job: FederationJob, trained: Job) -> None:
    """Refuse to go on without a party where what others have rests on it."""
    if trained.lost_party == "end":
        return
    where = 'lost_party = "continue"'
    if trained.protection in ("dealer", "encrypted"):
        raise JobError(
            f'{where} with protection = "{trained.protection}": weights are in shares, and those of a party that is '
            'gone are lost; use protection = "masked" or "none"'
        )
    if trained.label_privacy is not None:
        raise JobError(f"{where} trains more than once on the same responses; remove it, or label_privacy")
    if job.crosses_trees:
        raise JobError(f"{where} is not for trees that cross parties; remove it, or `interactions`")
    if "flower" not in VERTICAL[trained.solver].runtimes:
        raise JobError(f"{where} is not for solver {trained.solver!r}, in which parties send each other messages")


def _check_clients_job(job: ClientsJob) -> None:
    check_names("client", list(job.parts))
    for name in job.parts:
        site_name(name)
    if job.server.has_rows or job.clock is not None:
        raise JobError(
            "remove the keys server and clock: between organisations the server has no rows, and the virtual clock "
            "exists only in simulation"
        )
    if job.data.lacking_columns == "missing" and job.data.columns is None:
        raise JobError(
            'lacking_columns = "missing" needs data.columns between organisations, because a client sees only its own '
            "table; list the features of all clients"
        )
    if job.n_classes is not None or job.to_model().kind == "resnet18":
        raise JobError(
            "between organisations, horizontal jobs train two classes on columns of tables; remove data.label.classes, "
            'and choose another model than "resnet18"'
        )
    if job.privacy is not None and job.privacy.epsilon is not None:
        check_experimental(
            "privacy.epsilon", "privacy.epsilon", job.job.allow_experimental, "set allow_experimental = true in [job]"
        )
    check_agreed(job)


def _check_own(own: PartyFile) -> None:
    site_name(own.party.name)
    if unknown := [kind for kind in own.policy.never_send if kind not in schemas()]:
        raise JobError(
            f"key policy.never_send names {unknown[0]!r}, which is no kind of message, so it would keep nothing back; "
            "see docs/messages.md"
        )
    if own.party.role == "dealer":
        if more := sorted(own.party.model_fields_set - {"name", "role"}):
            raise JobError(f"key party.{more[0]}: a dealer has no data; remove this key")
    elif own.party.role != "client":
        check_party(own.party, "party")
        if own.party.label is not None and own.party.label.classes is not None:
            raise JobError(
                "key party.label.classes: all participants must know the classes, so the job names them; remove the "
                "key, and set classes in [job]"
            )
    elif {"id", "columns", "label", "sensitive", "weight"} & own.party.model_fields_set:
        raise JobError(
            "key party: remove id, columns, label, sensitive and weight from a client's file; see [data] in the job"
        )
    else:
        located(own.party, Path())


class SiteEnv(NamedTuple):
    """A site's own file, the folder that its relative paths start from, and the folder of its runs."""

    own: PartyFile
    base: Path
    runs: Path


def this_site() -> SiteEnv:
    """Return the environment of this site, from the environment variables that were set when it was started."""
    path = os.environ.get(PARTY_FILE)
    if not path:
        raise RunError(
            "this site was started without a party's file; start it with evenhand federation join or serve, or set "
            f"{PARTY_FILE} to the file"
        )
    return site_env(Path(path), os.environ.get(RUNS))


def identity_folder(given: str | Path | None, base: Path) -> Path | None:
    """Return the folder of a site's identity: that of its start-up kit, or the one that its file names."""
    found = os.environ.get(IDENTITY) or given
    return None if not found else base / found


def site_env(path: Path, runs: str | None = None) -> SiteEnv:
    base = path.absolute().parent
    return SiteEnv(read_party(path), base, Path(runs or base / "runs"))
