"""The `evenhand` command: gathers the commands and turns errors into messages and exit codes."""

from __future__ import annotations

import sys

import typer
from rich.console import Console
from rich.text import Text

from evenhand.cli import data, demo, predict, reproduce, train
from evenhand.errors import EvenhandError

app = typer.Typer(
    name="evenhand",
    help="Train fair and constrained models across parties that may not pool their data.",
    epilog="Exit codes: 0 done, 2 wrong input or job file, 3 data set not to be had, 4 run folder unusable, "
    "5 message refused, 6 training diverged, 7 optional part missing, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("predict")(predict.predict)
app.command("reproduce")(reproduce.reproduce)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the command line; errors raised on purpose become one message and their exit code."""
    try:
        app()
    except EvenhandError as error:
        # Text, not markup: messages quote paths and values, which may hold brackets and colons.
        Console(stderr=True).print(Text.assemble(("error:", "bold red"), f" {error}"), soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
