"""Inputs of every kind for what reads tables: each is taken, and then rightly, or refused with an error of ours."""

from __future__ import annotations

import bz2
import csv
import datetime
import gzip
import io
import json
import lzma
import math
import random
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from fuzz.feeding import Target, in_a_file, mutated, some_changed, taken
from scipy import sparse
from support.csv_files import random_table, random_writing, written
from support.damage import damaged

from evenhand.data import PartyEncoder, TableSource, read_libsvm, read_table
from evenhand.data.tables.party_tables import open_table
from evenhand.data.tables.stream import encode_parquet
from evenhand.errors import EvenhandError
from evenhand.training.vertical_sources import align, common_rows

# -- CSV


def fuzz_csv(rng: random.Random) -> bool:
    """CSV files as they may be written, half of them damaged; what is taken has the records that Python's csv finds."""
    table, writing = random_table(rng), random_writing(rng)
    whole = written(table, writing)
    content = whole if rng.random() < 0.5 else damaged(whole, rng)
    header = written({name: [] for name in table}, writing).rstrip(b"\r\n") + writing.line_end.encode()

    def feed(path: Path) -> None:
        frame = read_table(TableSource(table=path))
        if content.startswith(header):
            text = io.StringIO(content.decode("utf-8-sig"), newline="")
            rows = [row for row in csv.reader(text, delimiter=writing.delimiter, strict=True) if row]
            assert (list(frame.columns), len(frame)) == (rows[0], len(rows) - 1), content

    found = in_a_file("t.csv", content, feed)
    assert found or content != whole, content
    return found


# -- Parquet


def fuzz_parquet(rng: random.Random) -> bool:
    """Parquet files of odd types or with damage, read whole and in batches; both take or both refuse."""
    content = _parquet(rng)
    content = content if rng.random() < 0.2 else damaged(content, rng)

    def feed(path: Path) -> None:
        with suppress(EvenhandError):
            encode_parquet(path)
        with suppress(EvenhandError):
            open_table(TableSource(table=path, id="id"), known=["flag"]).encode(np.ones(1, dtype=bool), True)
        frame = read_table(TableSource(table=path, id="id"))
        assert len(frame) == pq.read_metadata(path).num_rows

    return in_a_file("t.parquet", content, feed)


def _parquet(rng: random.Random) -> bytes:
    rows = rng.choice([1, 5, 60])
    odd: list[Callable[[], Any]] = [
        lambda: [rng.random() for _ in range(rows)],
        lambda: [rng.choice([None, math.nan, math.inf]) for _ in range(rows)],
        lambda: [datetime.date(1 + rng.randrange(9998), 1, 1) for _ in range(rows)],
        lambda: pa.array([rng.randrange(-(2**62), 2**62) for _ in range(rows)], pa.timestamp("ms")),
        lambda: pa.array([rng.randrange(-(2**31), 2**31) for _ in range(rows)], pa.date32()),
        lambda: [Decimal(rng.randrange(10**9)) / 100 for _ in range(rows)],
        lambda: [[rng.randrange(9)] for _ in range(rows)],
        lambda: [{"deep": {"er": rng.randrange(9)}} for _ in range(rows)],
        lambda: [rng.randbytes(3) for _ in range(rows)],
        lambda: pa.array([rng.choice(["a", "b"]) for _ in range(rows)]).dictionary_encode(),
        lambda: pa.array([rng.randrange(2**64) for _ in range(rows)], pa.uint64()),
    ]
    columns = {
        "id": rng.choice([list(range(rows)), [f"c{k}" for k in range(rows)], *(make() for make in rng.sample(odd, 1))]),
        "word": [rng.choice(["x", "yy", "zzz"]) for _ in range(rows)],
        "flag": [rng.random() < 0.5 for _ in range(rows)],
        rng.choice(["odd", "id.deep", "a.b"]): rng.choice(odd)(),
    }
    names = list(columns) if rng.random() < 0.9 else ["id", "word", "word", "odd"]
    out = io.BytesIO()
    pq.write_table(
        pa.table(list(columns.values()), names=names),
        out,
        compression=rng.choice(["none", "snappy", "gzip", "zstd"]),
        use_dictionary=rng.random() < 0.5,
        row_group_size=rng.choice([3, 100]),
        data_page_version=rng.choice(["1.0", "2.0"]),
    )
    return out.getvalue()


# -- LIBSVM

PIECES = [
    b"1",
    b"-1",
    b"+1",
    b"0",
    b"2:0.5",
    b"3:1e3",
    b":",
    b"1:",
    b":1",
    b"1:1:1",
    b"qid:3",
    b"#",
    b"# x",
    b"nan",
    b"inf",
]
PIECES += [
    b"1:nan",
    b"1:inf",
    b"2147483647:1",
    b"2147483648:1",
    b"9" * 5000 + b":1",
    b"1:" + b"9" * 400,
    b"-1:1",
    b"1_0:1",
]
PIECES += [
    b"1:1_0",
    b"\0",
    b"\xff",
    b"1,2",
    b"a:b",
    b"0:1",
    b"01:1",
    b"1e400",
    b"0x10",
    b"1:0x10",
    b"\xef\xbb\xbf1",
    b".",
]
PIECES += [b"\r", b"\x0b", b"\x0c", b"\x1c1", b"1 :1", b"1: 1", b"1:.", b"1:-", b"9" * 5000, b"1:1;2:2"]
PACKED: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def fuzz_libsvm(rng: random.Random) -> bool:
    """LIBSVM files with odd words or damage, packed or not; what is taken has the numbers that are written."""
    content = b"".join(_libsvm_line(rng) + rng.choice([b"\n", b"\n", b"\r\n"]) for _ in range(rng.randint(1, 6)))
    if rng.random() < 0.4:
        content = damaged(content, rng)
    ending = rng.choice(["", "", "", *PACKED])
    packed = content if not ending else PACKED[ending](content)
    if ending and rng.random() < 0.7:
        content, packed = b"", damaged(packed, rng)

    def feed(path: Path) -> None:
        matrix, labels = read_libsvm(path, first_index=1)
        if content:
            lines = [line.partition(b"#")[0].split() for line in content.split(b"\n")]
            rows = [(float(line[0]), [entry.split(b":") for entry in line[1:]]) for line in lines if line]
            assert labels.tolist() == [label for label, _ in rows], content
            assert matrix.data.tolist() == [float(value) for _, entries in rows for _, value in entries], content
            assert matrix.indices.tolist() == [int(index) - 1 for _, entries in rows for index, _ in entries], content
        open_table(TableSource(table=path), known=["label"]).encode(np.ones(len(labels), dtype=bool), True)

    return in_a_file(f"t.svm{ending}", packed, feed)


def _libsvm_line(rng: random.Random) -> bytes:
    words = [b"1", *(b"%d:%d" % (k, rng.randrange(9)) for k in range(1, rng.randint(1, 5)))]
    return b" ".join(rng.choice(PIECES) if rng.random() < 0.1 else word for word in words)


# -- encoder states


def fuzz_encoder_state(rng: random.Random) -> bool:
    """States with something put in the place of something else; what is taken is given back, and encodes."""
    frame, state = _state(rng)
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        state = mutated(state, rng)
    content = json.dumps(state).encode() if rng.random() < 0.9 else b"[" * rng.choice([10, 10**5])
    if rng.random() < 0.1:
        content = damaged(content, rng)

    def feed() -> None:
        encoder = PartyEncoder.from_json(content)
        assert encoder.to_state() == json.loads(content), content
        assert np.isfinite(encoder.transform(frame).sum()), content

    return taken(feed)


def _state(rng: random.Random) -> tuple[Any, Any]:
    rows = rng.choice([1, 5])
    frame = pd.DataFrame(
        {
            "age": [rng.gauss(40.0, 10.0) for _ in range(rows)],
            "job": [rng.choice(["cook", "Zoë", ""]) for _ in range(rows)],
            "code": pd.Categorical([rng.choice([1, 2, 10**12]) for _ in range(rows)]),
            "rate": pd.Categorical([rng.choice([0.5, 2.0, -1e300]) for _ in range(rows)]),
            "flag": [rng.random() < 0.5 for _ in range(rows)],
        }
    )
    data = frame if rng.random() < 0.7 else sparse.csr_array(frame[["age", "flag"]].astype(float).to_numpy())
    return data, PartyEncoder(scale=rng.random() < 0.7).fit(data).to_state()


# -- alignment

DAYS = [datetime.date(2020, 1, k) for k in (1, 2, 3)]
IDS: list[list[Any]] = [
    [1, 2, 3],
    ["1", "2", "3"],
    DAYS,
    [datetime.datetime(2020, 1, k) for k in (1, 2, 3)],
    list(pd.to_datetime(DAYS)),
    list(pd.to_datetime(DAYS).tz_localize("UTC")),
    [1.0, 2.0, 3.5],
    [True, False],
    [[1], [2]],
    [{}, {}],
    [Decimal(1), Decimal("2.50")],
    [None],
    [math.nan],
    [b"1", b"2"],
    [1j, 2j],
    [pd.Interval(0, 2), pd.Interval(1, 3)],
    list(pd.period_range("2020", "2022", freq="Y")),
    [10**30, 2**64],
    [object(), object()],
    [datetime.timedelta(1)],
    [datetime.time(1)],
    [np.int8(1), np.float32(2)],
    ["\ud800", "a\0b", "=cmd|x"],
]


def fuzz_align(rng: random.Random) -> bool:
    """Tables with ids of any type, or of several; those that are taken have the same ids, and their own values.

    Parties that exchange sums of the same ids find the same rows, or are refused as well.
    """
    frames = [_frame(rng) for _ in range(rng.randint(1, 3))]
    names = [f"party {k}" for k in range(len(frames))]
    how: Any = rng.choice(["equal", "inner"])
    if rng.random() < 0.1:
        arguments = {"frames": frames, "names": names, "how": how}
        changed = some_changed(arguments, rng)

        def feed_anything() -> None:
            align(**changed)

        return taken(feed_anything)

    def feed() -> None:
        together = align(frames, names, how)
        for before, after in zip(frames, together, strict=True):
            rows = dict(zip(before.index, before["row"], strict=True))
            assert [rows[one] for one in after.index] == after["row"].tolist()

    found = taken(feed)
    exchanged: list[Any] = []

    def exchange() -> None:
        exchanged.append(common_rows({name: frame.index for name, frame in zip(names, frames, strict=True)}, how))

    # Whole numbers beyond 64 bits and text that is none are no trouble where nobody has to write them.
    hard = any(one in (10**30, 2**64, "\ud800") for frame in frames for one in frame.index)
    agreed = taken(exchange)
    assert agreed == found or (hard and not agreed), [frame.index for frame in frames]
    if agreed:
        for frame, after, places in zip(frames, align(frames, names, how), exchanged[0].values(), strict=True):
            assert frame["row"].iloc[places].tolist() == after["row"].tolist()
    return found


def _frame(rng: random.Random) -> pd.DataFrame:
    pools = rng.sample(IDS, rng.choice([1, 1, 1, 2])) if rng.random() < 0.5 else IDS[rng.randrange(4) :][:1]
    ids = [one for pool in pools for one in rng.sample(pool, rng.randint(1, len(pool)))]
    kind = rng.choice([None, object, "category"])
    with suppress(TypeError, ValueError):
        return pd.DataFrame({"row": range(len(ids))}, index=pd.Index(ids, dtype=kind))
    # Lists and the like are no categories.
    return pd.DataFrame({"row": range(len(ids))}, index=pd.Index(ids, dtype=object, tupleize_cols=False))


TARGETS: dict[str, Target] = {
    "csv": fuzz_csv,
    "parquet": fuzz_parquet,
    "libsvm": fuzz_libsvm,
    "encoder state": fuzz_encoder_state,
    "align": fuzz_align,
}
