"""Show the communication: a diagram of the parties, bytes, and what each kind of message reveals."""

from __future__ import annotations

import numpy as np
import pandas as pd
from rich.filesize import decimal

from evenhand.protocol.roles import SERVER
from evenhand.report.page.charts import WIDTH
from evenhand.report.page.markup import Markup, details, section, table, tag, void
from evenhand.report.record import RunRecord
from evenhand.solvers.announcing import schemas

_ROW = 56


def exchange(record: RunRecord, identifier: str) -> Markup:
    traffic = record.traffic
    if traffic.empty:
        return Markup("")
    links = traffic.groupby(["sender", "receiver"], sort=False)[["messages", "nbytes"]].sum()
    others = [name for name in dict.fromkeys([*traffic["sender"], *traffic["receiver"]]) if name != SERVER]
    direct = int(links.loc[[SERVER not in link for link in links.index], "nbytes"].sum())
    aside = f" Parties sent each other {decimal(direct)} directly." if direct else ""
    sent = links.sum()
    total = f"{int(sent['messages']):,} messages, {decimal(int(sent['nbytes']))} in all."
    return section(
        identifier,
        "Communication",
        tag("p", total + aside),
        _diagram(others, links),
        _kinds(traffic),
        details("All links", _links(links)),
        level=3,
    )


def _diagram(others: list[str], links: pd.DataFrame) -> Markup:
    """Draw the server on the left and the others on the right; line width is the logarithm of the bytes."""
    height = _ROW * len(others) + 20
    left, right = 110, WIDTH - 170
    drawn = [
        void("rect", klass="box", x=4, y=10, width=left - 4, height=height - 20, rx=6),
        tag("text", SERVER, x=(left + 4) / 2, y=height / 2 + 4, text_anchor="middle"),
    ]
    most = float(links["nbytes"].max()) or 1.0
    for place, name in enumerate(others):
        y = 10 + _ROW * place + _ROW / 2
        for back, link in ((False, (SERVER, name)), (True, (name, SERVER))):
            sent = int(links["nbytes"].get(link, 0))
            if not sent:
                continue
            at, thick = y + (4 if back else -6), 1 + 6 * np.log1p(sent) / np.log1p(most)
            tip = f"{link[0]} to {link[1]}: {links['messages'][link]:,} messages, {decimal(sent)}"
            drawn += [
                tag(
                    "line",
                    tag("title", tip),
                    klass="flow back" if back else "flow",
                    x1=left + 4,
                    x2=right - 4,
                    y1=at,
                    y2=at,
                    stroke_width=round(thick, 1),
                    data_tip=tip,
                ),
                tag(
                    "text",
                    f"{'← ' if back else ''}{decimal(sent)}{'' if back else ' →'}",
                    klass="tick",
                    x=left + 16 if back else right - 12,
                    y=at + (15 if back else -7),
                    text_anchor="start" if back else "end",
                ),
            ]
        drawn += [
            void("rect", klass="box", x=right, y=y - 12, width=WIDTH - right - 4, height=24, rx=6),
            tag(
                "text",
                name if len(name) <= 22 else f"{name[:21]}…",
                x=(right + WIDTH) / 2 - 2,
                y=y + 4,
                text_anchor="middle",
            ),
        ]
    words = f"Bytes between the server and {len(others)} participants"
    svg = tag(
        "svg",
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=words,
        klass="chart",
    )
    return tag("figure", tag("figcaption", f"{words}; thicker lines carry more"), svg)


def _kinds(traffic: pd.DataFrame) -> Markup:
    known, rows = schemas(), []
    for kind, of_kind in traffic.groupby("kind", sort=False):
        senders = sorted({"server" if name == SERVER else "others" for name in of_kind["sender"]})
        sent = int(of_kind["nbytes"].sum())
        rows.append(
            [
                str(kind),
                " and ".join(senders),
                (f"{int(of_kind['messages'].sum()):,}", int(of_kind["messages"].sum())),
                (decimal(sent), sent),
                known[str(kind)].reveals if str(kind) in known else "",
            ]
        )
    return table(
        ["message", "sent by", "count", "bytes", "what it reveals"],
        rows,
        caption="Kinds of messages, and what each reveals to its receiver",
        numbers=(2, 3),
    )


def _links(links: pd.DataFrame) -> Markup:
    rows = [
        [sender, receiver, (f"{messages:,}", messages), (decimal(int(nbytes)), nbytes)]
        for (sender, receiver), messages, nbytes in links.itertuples(name=None)
    ]
    return table(["from", "to", "messages", "bytes"], rows, caption="Messages and bytes of every link", numbers=(2, 3))
