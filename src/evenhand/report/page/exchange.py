"""Show the communication: bytes on each link, and what each kind of message reveals."""

from __future__ import annotations

from typing import Final

import pandas as pd
from rich.filesize import decimal

from evenhand.protocol.roles import SERVER
from evenhand.report.page.bars import Bar, bar_chart
from evenhand.report.page.markup import Markup, details, section, table, tag
from evenhand.report.record import RunRecord
from evenhand.solvers.announcing import schemas

MOST_LINKS: Final = 16
"""Links drawn."""


def exchange(record: RunRecord, identifier: str) -> Markup:
    traffic = record.traffic
    if traffic.empty:
        return Markup("")
    links = traffic.groupby(["sender", "receiver"], sort=False)[["messages", "nbytes"]].sum()
    direct = int(links.loc[[SERVER not in link for link in links.index], "nbytes"].sum())
    aside = f" Parties sent each other {decimal(direct)} directly." if direct else ""
    sent = links.sum()
    total = f"{int(sent['messages']):,} messages, {decimal(int(sent['nbytes']))} in all."
    return section(
        identifier,
        "Communication",
        tag("p", total + aside),
        _amounts(links),
        details("All links", _links(links)),
        details("Each kind of message, and what it reveals", _kinds(traffic)),
        level=3,
    )


def _amounts(links: pd.DataFrame) -> Markup:
    """Draw the bytes of each link, the largest first."""
    largest = links.sort_values("nbytes", ascending=False, kind="stable")[:MOST_LINKS]
    rows = [
        Bar(f"{sender} → {receiver}", float(nbytes), decimal(int(nbytes)))
        for (sender, receiver), _, nbytes in largest.itertuples(name=None)
    ]
    more = len(links) - len(rows)
    words = f"Bytes on each link{f'; {more} smaller ones are in the table' if more else ''}"
    return bar_chart(words, rows, float(links["nbytes"].max()))


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
