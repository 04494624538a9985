"""The `evenhand` command: register all commands, and turn errors into messages and exit codes."""

from __future__ import annotations

import errno
import inspect
import os
import sys
import warnings
from importlib.metadata import version
from typing import Annotated, Final, TextIO

import typer
from rich.console import Console
from rich.text import Text

from evenhand.cli import (
    audit,
    check,
    data,
    demo,
    doctor,
    export,
    federation,
    frontier,
    identity,
    init,
    ledger,
    predict,
    report,
    scorecard,
    train,
    value,
    watch,
)
from evenhand.errors import EvenhandError, EvenhandWarning, InputError, ResourceError, no_room
from evenhand.printing import printable, say

CLOSED: Final = 1
"""Exit code when the reader of the output has closed it, as after `| head`."""
_LEAST_SPACE: Final = 1_500_000_000
"""Bytes of address space. With less, DuckDB and OpenBLAS abort without an exception: with 0.65 GB all of six runs of a
job with 120 rows failed, with 1.25 GB some could not read a table, from 1.4 GB on none failed."""
_LOADS_LIBRARIES: Final = ("demo", "init", "check", "train", "predict", "frontier")


def _show_version(asked: bool) -> None:
    if asked:
        say(f"evenhand {version('evenhand')}")
        raise typer.Exit


def _everything(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Train fair and constrained models across parties that may not pool their data."""
    if context.invoked_subcommand in _LOADS_LIBRARIES:
        check_address_space()


def check_address_space() -> None:
    """Refuse to start under a limit on address space (``ulimit -v``) that the libraries cannot work with."""
    if sys.platform == "win32":
        return
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_SPACE:
        raise ResourceError(
            f"this process may use {limit / 1e9:.2f} GB of address space (ulimit -v); loading the libraries and "
            f"reading a small table takes {_LEAST_SPACE / 1e9:.1f} GB, and torch takes 3 GB"
        )


app = typer.Typer(
    name="evenhand",
    help="Train fair and constrained models across parties that may not pool their data.",
    epilog="Exit codes: 0 success, 1 output pipe closed, 2 wrong input or job file, 3 data set unavailable, "
    "4 run folder unusable, 5 message refused, 6 training diverged, 7 extra not installed, "
    "8 not enough disk or memory, 9 trained, but not converged, one label for every row, or "
    "contradicted by held-out rows, "
    "10 a participant was lost and the run can be resumed, 130 interrupted.",
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
app.command("value")(value.value)
app.command("report")(report.report)
app.command("export")(export.export)
app.command("scorecard")(scorecard.scorecard)
app.command("ledger")(ledger.ledger)
app.add_typer(federation.app, name="federation")
app.add_typer(identity.app, name="identity")
app.add_typer(data.app, name="data")


def _unwrapped(text: str) -> str:
    """Join the lines of each paragraph, which Typer would break where the source does; keep examples (after \\b)."""
    parts = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith("\b") else " ".join(part.split()) for part in parts)


for _group in (app, federation.app, identity.app, data.app):
    for _command in _group.registered_commands:
        if _command.callback is not None:
            _command.help = _unwrapped(_command.callback.__doc__ or "")


def main() -> None:
    """Run the `evenhand` command line."""
    run_command(app)


def run_command(command: typer.Typer) -> None:
    """Run a command line; an `EvenhandError` becomes one message and its exit code."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            try:
                command()
            finally:
                sys.stdout.flush()
    except EvenhandError as error:
        _tell("error:", "bold red", error)
        sys.exit(error.exit_code)
    except MemoryError as error:
        _tell("error:", "bold red", f"out of memory ({error or 'no details'})")
        sys.exit(ResourceError.exit_code)
    except OSError as error:
        reason = no_room(error)
        if reason is None and error.errno != errno.EPIPE:
            _tell("error:", "bold red", f"cannot use {error.filename or 'the output'}: {error.strerror}")
            sys.exit(InputError.exit_code)
        # Python flushes stdout at exit, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if reason is None:
            sys.exit(CLOSED)
        _tell("error:", "bold red", f"cannot write output: {reason}")
        sys.exit(ResourceError.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def _tell(kind: str, style: str, what: object) -> None:
    # Text, not markup: messages quote paths and values, which may contain brackets.
    Console(stderr=True).print(Text.assemble((kind, style), f" {printable(str(what))}"), soft_wrap=True)


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show our own warnings without the line of code; show others as Python does."""
    if issubclass(category, EvenhandWarning):
        _tell("warning:", "yellow", message)
    else:
        sys.stderr.write(printable(warnings.formatwarning(message, category, filename, lineno, line)))
