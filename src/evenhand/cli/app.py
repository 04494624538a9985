"""The `evenhand` command: gathers the commands and turns errors into messages and exit codes."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TextIO

import typer
from rich.console import Console
from rich.text import Text

from evenhand.cli import (
    align,
    audit,
    data,
    demo,
    federation,
    flower,
    frontier,
    predict,
    report,
    reproduce,
    train,
    watch,
)
from evenhand.errors import EvenhandError, EvenhandWarning, ResourceError
from evenhand.printing import printable
from evenhand.runtime.files import no_room

app = typer.Typer(
    name="evenhand",
    help="Train fair and constrained models across parties that may not pool their data.",
    epilog="Exit codes: 0 done, 2 wrong input or job file, 3 data set not to be had, 4 run folder unusable, "
    "5 message refused, 6 training diverged, 7 optional part missing, 8 too little disk or memory, "
    "9 trained, but not converged or with one label for every row, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("predict")(predict.predict)
app.command("frontier")(frontier.frontier)
app.command("watch")(watch.watch)
app.command("audit")(audit.audit)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
for command in (federation.provision, federation.serve, federation.join, federation.submit):
    app.command(command.__name__)(command)
app.command("flower")(flower.flower)
app.command("align")(align.align)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the command line; errors raised on purpose become one message and their exit code."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            try:
                app()
            finally:
                sys.stdout.flush()
    except EvenhandError as error:
        _tell("error:", "bold red", error)
        sys.exit(error.exit_code)
    except MemoryError as error:
        _tell("error:", "bold red", f"there is too little memory ({error or 'nothing more is known'})")
        sys.exit(ResourceError.exit_code)
    except OSError as error:
        if (reason := no_room(error)) is None:
            raise
        # What is still in the buffer would not go out at the very end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _tell("error:", "bold red", f"what there is to say cannot be written: {reason}")
        sys.exit(ResourceError.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def _tell(kind: str, style: str, what: object) -> None:
    # Text, not markup: messages quote paths and values, which may hold brackets and colons.
    Console(stderr=True).print(Text.assemble((kind, style), f" {printable(str(what))}"), soft_wrap=True)


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Our own warnings are for users, whom the line of code does not help; others are shown as Python shows them."""
    if issubclass(category, EvenhandWarning):
        _tell("warning:", "yellow", message)
    else:
        sys.stderr.write(printable(warnings.formatwarning(message, category, filename, lineno, line)))
