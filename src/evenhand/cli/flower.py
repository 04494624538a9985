"""`evenhand flower`: a job as a Flower app, for organisations that already run a SuperLink."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.saying import remark, say


def flower(
    folder: Annotated[Path, typer.Argument(help="Where the app goes; it must not hold anything yet.")],
    job: Annotated[Path, typer.Option(help="What to train, and the names and parts of the parties (TOML).")],
) -> None:
    """Write a job as a Flower app, ready for `flwr run`.

    \b
    At each party, and where the SuperLink is, evenhand[flower] is installed and EVENHAND_PARTY_FILE names the party's
    own file (at the SuperLink: that of the party that holds the labels). Each node's key is registered under the name
    of its party:
      flwr supernode register bank.pub --name bank
      EVENHAND_PARTY_FILE=party.toml flower-supernode ...
      flwr run FOLDER

    \b
    Example:
      evenhand flower app --job job.toml
    """
    from evenhand.jobs.federation.files import read_federation_job
    from evenhand.jobs.federation.flower_app import write_app

    write_app(read_federation_job(job), job.stem, folder)
    say(str(folder))
    remark("whoever may submit to a SuperLink runs code at its nodes: docs/threat-model.md says what to close")
