"""`evenhand report`: one page about one or several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenhand.errors import InputError
from evenhand.printing import remark, say


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several are shown side by side.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write; default report.html in the folder of the first run.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Write no file; serve the page live on this machine.")] = False,
    mlflow: Annotated[
        str | None, typer.Option(metavar="URI", help="Also log each run to this MLflow server, with its page.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of --serve; 0 takes any free port.")] = 8765,
) -> None:
    """Write a self-contained HTML page about one or several runs.

    It shows the constraints and whether they are met, group metrics with intervals, rounds, messages and what they
    reveal, the weights of each party's features, the certificate, the job, checksums and a model card. It contains
    counts of people by group and all parties' weights: share it accordingly.

    \b
    Examples:
      evenhand report runs/monday
      evenhand report runs/plain runs/fair --out compared.html
      evenhand report runs/monday --serve
      evenhand report runs/monday --mlflow http://127.0.0.1:5000

    With --serve the page follows a running job at http://127.0.0.1:8765 until Ctrl-C.
    """
    # Imported here: loading takes a second, and --help should not wait for it.
    from evenhand.report.page import write_page
    from evenhand.report.record import RunRecord

    records = [RunRecord.read(run) for run in runs]
    if serve:
        if out is not None or mlflow is not None:
            raise InputError("--serve writes no file and logs nothing; remove --out and --mlflow")
        _serve(runs, port)
        return
    for run, record in zip(runs, records, strict=True):
        if not record.finished:
            raise InputError(
                f"the run in {run} has not finished; follow it with --serve, or with: evenhand watch {run}"
            )
        if not record.measured:
            raise InputError(
                f"{run} is the side of {record.side or 'a participant'}, which has no metrics of the model; make the "
                "page from the server's run folder"
            )
    path = runs[0] / "report.html" if out is None else out
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists; choose another file with --out, or replace it with --overwrite")
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} for {path.name} does not exist")
    write_page(records, path)
    if mlflow is not None:
        from evenhand.report.tracking import track

        for record in records:
            remark(f"{record.name} is logged as MLflow run {track(record, mlflow)}")
    say(str(path))


def _serve(runs: list[Path], port: int) -> None:
    from evenhand.report.serving import HOST, page_server

    with page_server(runs, port) as server:
        say(f"http://{HOST}:{server.server_port}/")
        remark("stop with Ctrl-C")
        server.serve_forever()
