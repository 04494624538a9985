"""`evenhand export`: a finished run as an ONNX model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenhand.errors import InputError
from evenhand.printing import remark


def export(
    run: Annotated[Path, typer.Argument(help="Run folder of a finished run of linear models, trees or perceptrons.")],
    out: Annotated[Path, typer.Option(help="File to write; its name ends in .onnx.")],
    party: Annotated[str | None, typer.Option(help="Export this party's own part of the score only.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a finished run as an ONNX model, which scores rows without evenhand (extra `onnx`).

    The model has an input for each raw column: text as strings ("" is missing), all others in double precision (NaN is
    missing; booleans are 0 and 1, dates are days since 1970). Its outputs are those of `evenhand predict`: score,
    probability and label. It contains the weights of all parties, so they must agree to it. With --party only that
    party's files are read, and the output is its part of the score; the joint score is the sum over parties.

    \b
    Examples:
      evenhand export runs/monday --out model.onnx
      evenhand export runs/monday --party shop --out shop.onnx
    """
    from evenhand.jobs.exporting import export_onnx
    from evenhand.runtime.files import write_bytes
    from evenhand.runtime.folder import RunFolder

    if out.suffix.lower() != ".onnx":
        raise InputError(f"--out {out}: the name must end in .onnx")
    if out.exists() and not overwrite:
        raise InputError(f"--out {out} exists; choose another file, or replace it with --overwrite")
    content = export_onnx(RunFolder.open(run), party)
    write_bytes(out, content)
    remark(f"{len(content):,} bytes written into {out}")
