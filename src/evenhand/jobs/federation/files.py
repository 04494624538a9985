"""Two files: the job, which everybody has and which holds nothing private, and each party's own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import Field

from evenhand.errors import JobError, RunError
from evenhand.jobs.horizontal.file import HorizontalJobFile, check_agreed
from evenhand.jobs.schema import Strict, check_names, key, located, once, parsed, read_toml
from evenhand.jobs.vertical.file import PartySection, VerticalJobSection, check_party, check_training
from evenhand.protocol.job import Job, Protection
from evenhand.protocol.policy import OwnPolicy
from evenhand.protocol.terms import Part

# Names become those of machines and of their addresses.
_SITE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_RUN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}")
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")


PARTY_FILE: Final = "EVENHAND_PARTY_FILE"
"""Where a site's processes find its own file; at the server, that of the party that holds the labels."""
RUNS: Final = "EVENHAND_RUNS"
"""Where a site keeps its run folders."""
CHECKPOINT_SECONDS: Final = "EVENHAND_CHECKPOINT_SECONDS"
"""At the server: least time between two checkpoints."""


class FederationSection(Strict):
    """`[federation]`: the participants, and the address of the server."""

    name: str = key("Name of the federation.", "lending")
    server: str = key("Host name of the server.", "server.example")
    port: int = key("Port of the server.", 443, 8002, ge=1, le=65535)
    parties: list[str] = key("Names of all parties or clients.", ["bank", "shop"], min_length=1)


class FederationFile(Strict):
    """What start-up kits are made from."""

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

    ids: Literal["equal", "inner", "private"] = key(  # type: ignore[assignment]
        "As in a vertical job; `private` finds the common ids by private set intersection.", "private", "equal"
    )
    text_ids: bool = key("Whether ids in CSV files are text even if they look like numbers.", True, False)
    least_common: int = key("Fewest common ids; with fewer, the run ends and no party learns any.", 1000, 1, ge=1)


class FederationJob(Strict):
    """A job that is submitted to a federation."""

    job: FederationJobSection = Field(default_factory=FederationJobSection)
    party: list[MemberSection] = Field(min_length=1)

    @once
    def to_job(self) -> Job:
        return self.job.as_job()

    @property
    def parts(self) -> dict[str, Part]:
        """Of everybody who takes part."""
        known: dict[str, Part] = {"active": "active", "dealer": "dealer"}
        return {one.name: known.get(one.role, "passive") for one in self.party}

    @property
    def parties(self) -> list[str]:
        """Those that have columns."""
        return [name for name, part in self.parts.items() if part != "dealer"]

    @property
    def crosses_trees(self) -> bool:
        """Whether trees may ask columns of several parties, and rows are scored together."""
        return self.job.options.get("interactions", "none") != "none"

    @property
    def holder(self) -> str:
        """Who holds the labels: the first active party. The server is where it is, or where it is trusted."""
        return next(one.name for one in self.party if one.role == "active")


class ClientMember(Strict):
    """`[[client]]`: a client's name and its own bound. Its table is in its own `party.toml`."""

    name: str = key("Name of the client, as in its start-up kit.", "ghent")
    limit: float | None = key("Bound of this client's local constraint, in place of its ε or limit.", 0.6, None)


class ClientsJob(HorizontalJobFile):
    """A job across rows that is submitted to a federation: what all agree on, and nothing of what a client has."""

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
    most_rounds: int | None = key("Most rounds that it accepts.", 100, None, ge=1)
    least_rows: int = key("Fewest common rows that it accepts.", 500, 0, ge=0)
    participants: list[str] | None = key("Participants that it accepts; by default all.", ["bank", "shop"], None)
    protected: bool = key("Whether it accepts only jobs with `[privacy]` noise.", True, False)
    never_send: list[str] = key("Kinds of messages that it never sends; the run ends there.", ["combined-scores"], [])
    columns: list[str] | None = key("Columns that a job across clients may use; by default all.", ["age", "ward"], None)
    protection: Protection = key("Weakest `protection` that it accepts.", "masked", "none")
    label_epsilon: float | None = key(
        "Largest ε of `label_privacy` that it accepts. Jobs without `label_privacy` are then refused.", 1.0, None
    )

    def to_policy(self) -> OwnPolicy:
        return OwnPolicy(**self.model_dump(exclude={"columns"}))

    def check_columns(self, wanted: Iterable[str]) -> None:
        """Refuse a job across rows that asks for columns which this client keeps out."""
        if self.columns is not None and (others := [name for name in wanted if name not in self.columns]):
            raise RunError(f"the job asks for column {others[0]!r}, which this party's policy does not allow")


class PartyFile(Strict):
    """What is a party's own: where its table is, what is in it, and on which terms it takes part."""

    party: OwnSection
    policy: PolicySection = Field(default_factory=PolicySection)


def read_federation(path: Path) -> FederationFile:
    return parsed(FederationFile, _check_federation, read_toml(path, "file of a federation"), path.name)


def parse_federation_job(content: dict[str, Any], where: str) -> AnyJob:
    section = content.get("job")
    if isinstance(section, dict) and section.get("split") == "horizontal":
        return parsed(ClientsJob, _check_clients_job, content, where)
    return parsed(FederationJob, _check_job, content, where)


def read_federation_job(path: Path) -> AnyJob:
    return parse_federation_job(read_toml(path), path.name)


def read_party(path: Path) -> PartyFile:
    return parsed(PartyFile, _check_own, read_toml(path, "party file"), path.name)


def run_place(runs: Path, run: str, *, at_server: bool = False) -> Path:
    """The folder of a run by its name, which came from elsewhere and leads nowhere else.

    The server may run beside a party, on the same file: its side has a name of its own.
    """
    if not _RUN.fullmatch(run):
        raise JobError(f"{run!r} cannot be the name of a run; it has letters, digits and '-'")
    return runs / (f"{run}-server" if at_server else run)


def site_name(name: str) -> str:
    """The name of a party's machine, which is the party's own."""
    if not _SITE.fullmatch(name) or name == "server":
        raise JobError(
            f"{name!r} cannot be the name of a site; between organisations a name has letters, digits, '-' and '_', "
            "begins with a letter, and is not 'server'"
        )
    return name


def _check_federation(file: FederationFile) -> None:
    found = file.federation
    check_names("party", found.parties)
    for name in [found.name, *found.parties]:
        site_name(name)
    if not _HOST.fullmatch(found.server) or found.server in found.parties:
        raise JobError(f"key federation.server is {found.server!r}; it is the name or address of a machine")


def _check_job(job: FederationJob) -> None:
    check_names("party", [one.name for one in job.party])
    for number, one in enumerate(job.party):
        site_name(one.name)
        if one.role not in ("active", "passive", "dealer"):
            raise JobError(f'key party.{number}.role is {one.role!r}; it is "active", "passive" or "dealer"')
    if "active" not in job.parts.values():
        raise JobError("no party is active; the one that holds the labels must be")
    dealers = [one.name for one in job.party if one.role == "dealer"]
    if len(dealers) != (1 if job.job.protection == "dealer" else 0):
        raise JobError(
            f'{len(dealers)} parties have the role "dealer", and job.protection is {job.job.protection!r}: the level '
            '"dealer" takes one, whom nobody else controls, and no other level takes any; with nobody to trust there '
            'is "encrypted"'
        )
    if job.job.runtime != "auto":
        raise JobError("key job.runtime: between organisations there is only one way to run; leave it out")
    check_training(job.to_job())


def _check_clients_job(job: ClientsJob) -> None:
    check_names("client", list(job.parts))
    for name in job.parts:
        site_name(name)
    if job.server.has_rows or job.clock is not None:
        raise JobError("keys server and clock: between organisations the server has no rows, and time is what it is")
    if job.n_classes is not None or job.job.model == "resnet18":
        raise JobError("between organisations models have two classes, over columns of tables")
    check_agreed(job)


def _check_own(own: PartyFile) -> None:
    site_name(own.party.name)
    if own.party.role == "dealer":
        if more := sorted(own.party.model_fields_set - {"name", "role"}):
            raise JobError(f"key party.{more[0]}: a dealer has no data; leave it out")
    elif own.party.role != "client":
        check_party(own.party, "party")
    elif {"id", "columns", "label", "sensitive", "weight"} & own.party.model_fields_set:
        raise JobError("key party: of a client, the job says in [data] what id, columns, label and sensitive ones are")
    else:
        located(own.party, Path())


class SiteEnv(NamedTuple):
    """A side's own file, the folder that relative paths in it start from, and where its run folders go."""

    own: PartyFile
    base: Path
    runs: Path


def this_site() -> SiteEnv:
    """As whoever started this site has said."""
    path = os.environ.get(PARTY_FILE)
    if not path:
        raise RunError(
            "this site was started without a party's file; start it with evenhand federation join or serve, or set "
            f"{PARTY_FILE} to the file"
        )
    return site_env(Path(path), os.environ.get(RUNS))


def site_env(path: Path, runs: str | None = None) -> SiteEnv:
    base = path.absolute().parent
    return SiteEnv(read_party(path), base, Path(runs or base / "runs"))
