"""`evenhand federation provision | request | admit | install | renew`: start-up kits and their certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenhand.errors import InputError
from evenhand.printing import remark, say

AuthorityOption = Annotated[Path, typer.Option(help="Folder of the authority, which signs.")]
DaysOption = Annotated[int, typer.Option(min=1, help="Days that the certificate is valid.")]


def provision(
    federation: Annotated[Path, typer.Argument(help="The participants, and the server's address (TOML).")],
    out: Annotated[Path, typer.Option(help="Folder for the kits; it must be empty or new.")] = Path("kits"),
    request: Annotated[
        list[Path] | None,
        typer.Option(help="A request of a party that has made its own keys; its kit holds none. Repeatable."),
    ] = None,
) -> None:
    """Make start-up kits: certificates and settings for the server, each party, and those who submit jobs.

    The submitter's kit submits jobs, and follows and aborts its own. The operator's sees who is there, aborts any job
    and revokes parties. The admin's does both. None can stop a party, read its host or change its settings.

    \b
    federation.toml:
      [federation]
      name = "credit"
      server = "fl.bank.example"      # the host name by which parties reach the server
      port = 8002
      parties = ["bank", "shop", "phone"]

    \b
    Examples:
      evenhand federation provision federation.toml --out kits
      evenhand federation provision federation.toml --out kits --request shop.json --request phone.json
    """
    from evenhand.jobs.federation.files import read_federation
    from evenhand.runtime.nvflare.certificates import read_request
    from evenhand.runtime.nvflare.kits import provision as make_kits

    found = read_federation(federation).federation
    requests = [read_request(path) for path in request or []]
    for kit in make_kits(found.name, found.server, found.port, found.parties, out, requests):
        say(str(kit))
    remark("send each participant its kit over a trusted channel; keep authority/ private: it can sign new kits")


def request(
    name: Annotated[str, typer.Argument(help="Name of this party.")],
    out: Annotated[Path, typer.Option(help="Folder for this party's keys; it must be empty or new.")] = Path("own"),
) -> None:
    """Make this party's keys here, and a request to be admitted. The keys never leave this machine.

    \b
    Example:
      evenhand federation request shop --out own
    """
    from evenhand.jobs.federation.files import site_name
    from evenhand.protocol.identity import fingerprint
    from evenhand.runtime.nvflare.certificates import make_request, read_request

    path = make_request(site_name(name), out)
    say(str(path))
    say(f"fingerprint {fingerprint(read_request(path).identity)}")
    remark(f"send {path} to whoever keeps the authority, and compare the fingerprint over the telephone")


def admit(
    request: Annotated[Path, typer.Argument(help="The party's request.")],
    kits: Annotated[Path, typer.Option(help="Folder with the authority, and the admin's kit.")] = Path("kits"),
) -> None:
    """Make a kit for a party that has sent a request; the federation goes on running.

    \b
    Example:
      evenhand federation admit request.json --kits kits
    """
    from evenhand.jobs.federation.files import site_name
    from evenhand.protocol.identity import fingerprint
    from evenhand.runtime.nvflare.certificates import read_request
    from evenhand.runtime.nvflare.kits import admit as make_kit

    found = read_request(request)
    kit, _ = make_kit(found._replace(name=site_name(found.name)), kits)
    say(str(kit))
    say(f"fingerprint {fingerprint(found.identity)}")
    remark(
        f"compare the fingerprint over the telephone, then send the party {kit}. Every other participant adds it with: "
        f"evenhand identity add KIT/identity {found.name} {found.identity.hex()}"
    )


def install(
    kit: Annotated[Path, typer.Argument(help="The kit that was made for this party's request.")],
    own: Annotated[Path, typer.Argument(help="Folder of this party's keys, as `request` made it.")],
) -> None:
    """Put this party's own keys into the kit that was made for its request.

    \b
    Example:
      evenhand federation install kits/shop own
    """
    from evenhand.runtime.nvflare.certificates import install_keys

    install_keys(kit, own)
    say(f"{kit} is ready")


def renew(
    certificate: Annotated[
        Path | None, typer.Argument(help="The certificate to renew; without it, the authority's own.")
    ] = None,
    authority: AuthorityOption = Path("kits/authority"),
    out: Annotated[Path | None, typer.Option(help="File for the new certificate; default is beside the old.")] = None,
    request: Annotated[
        Path | None, typer.Option(help="A request with a new key of the same party, which replaces the old one.")
    ] = None,
    days: Annotated[int | None, typer.Option(min=1, help="Days that it is valid: 365, the authority's 3650.")] = None,
) -> None:
    """Renew a certificate. Its owner puts the new file in place of the old one and restarts `join` or `serve`.

    A certificate is no secret: the party sends its own (KIT/startup/client.crt), and gets the new one back. The key
    stays, unless the party sends a request with a new one.

    \b
    Examples:
      evenhand federation renew client.crt --authority kits/authority --out new.crt
      evenhand federation renew client.crt --request request.json --out new.crt
      evenhand federation renew --authority kits/authority --out rootCA.pem
    """
    from evenhand.protocol.identity import fingerprint
    from evenhand.runtime.nvflare import certificates

    found = certificates.Authority(authority)
    if certificate is None:
        if request is not None:
            raise InputError("--request is for a party's certificate; name the certificate to renew")
        target = out or Path(certificates.ROOT)
        _check_new(target)
        made = found.renew_root(days or certificates.ROOT_DAYS)
        remark(f"every kit needs the new file as startup/{certificates.ROOT}; certificates stay valid")
    else:
        given, key = certificates.load(certificate), None
        if request is not None:
            asked = certificates.read_request(request)
            if asked.name != certificates.subject_of(given):
                raise InputError(f"{request} is of {asked.name}, the certificate of {certificates.subject_of(given)}")
            key = asked.public_key
            say(f"fingerprint {fingerprint(asked.identity)}")
            remark("the new key is in the name of the party: compare the fingerprint over the telephone")
        target = out or certificate.with_suffix(".new.crt")
        _check_new(target)
        made = found.renewed(given, days or certificates.DAYS, key)
    certificates.write_certificate(target, made)
    say(str(target))
    say(f"{certificates.subject_of(made)}: valid until {made.not_valid_after_utc:%Y-%m-%d}")


def prune(
    keep: Annotated[str, typer.Option(help="Age up to which runs and jobs are kept, such as 90d, 12h or 4w.")],
    runs: Annotated[Path | None, typer.Option(help="Folder of runs at this site.")] = None,
    store: Annotated[Path | None, typer.Option(help="At the server: the folder of jobs.")] = None,
    kit: Annotated[Path | None, typer.Option(help="The kit of this site, with logs of its jobs.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
) -> None:
    """Delete runs, jobs and logs of this site that are older than --keep, with their models. A run in progress is kept.

    \b
    Examples:
      evenhand federation prune --keep 90d --runs runs --dry-run
      evenhand federation prune --keep 90d --runs runs --kit kits/shop
      evenhand federation prune --keep 90d --runs runs --store jobs --kit kits/server
    """
    from evenhand.jobs.federation.retention import age_of, old_jobs, old_logs, old_runs, remove

    if runs is None and store is None and kit is None:
        raise InputError("give folders to look into: --runs, --kit, at the server also that of jobs with --store")
    age = age_of(keep)
    found = ((old_runs, runs), (old_jobs, store), (old_logs, kit))
    for path in [path for old, place in found if place is not None for path in old(place, age)]:
        if not dry_run:
            remove(path)
        say(str(path))


def _check_new(path: Path) -> None:
    if path.exists():
        raise InputError(f"{path} exists; choose another file with --out")
