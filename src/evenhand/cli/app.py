"""The `evenhand` command: gathers the commands and turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from importlib.metadata import version
from typing import Annotated, Final, TextIO

import typer
from rich.console import Console
from rich.text import Text

from evenhand.cli import (
    align,
    audit,
    check,
    data,
    demo,
    doctor,
    federation,
    flower,
    frontier,
    init,
    predict,
    report,
    reproduce,
    train,
    watch,
)
from evenhand.cli.saying import say
from evenhand.errors import EvenhandError, EvenhandWarning, InputError, ResourceError, no_room
from evenhand.printing import printable

CLOSED: Final = 1
"""The exit code where nobody reads the output any more, as after `| head`."""


def _show_version(asked: bool) -> None:
    if asked:
        say(f"evenhand {version('evenhand')}")
        raise typer.Exit


def _everything(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """Train fair and constrained models across parties that may not pool their data."""


app = typer.Typer(
    name="evenhand",
    help="Train fair and constrained models across parties that may not pool their data.",
    epilog="Exit codes: 0 done, 1 whoever read the output has closed it, 2 wrong input or job file, "
    "3 data set not to be had, 4 run folder unusable, 5 message refused, 6 training diverged, "
    "7 optional part missing, 8 too little disk or memory, "
    "9 trained, but not converged or with one label for every row, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.callback()(_everything)
app.command("demo")(demo.demo)
app.command("init")(init.init)
app.command("check")(check.check)
app.command("doctor")(doctor.doctor)
app.command("train")(train.train)
app.command("predict")(predict.predict)
app.command("frontier")(frontier.frontier)
app.command("watch")(watch.watch)
app.command("audit")(audit.audit)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
for command in (federation.provision, federation.serve, federation.join, federation.submit, federation.revoke):
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
        reason = no_room(error)
        if reason is None and error.errno != errno.EPIPE:
            # Of a file that we write, what is wrong was said where it was written.
            _tell("error:", "bold red", f"{error.filename or 'what there is to say'} cannot be used: {error.strerror}")
            sys.exit(InputError.exit_code)
        # What is still in the buffer would not go out at the very end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if reason is None:
            sys.exit(CLOSED)
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
