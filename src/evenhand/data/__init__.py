"""Data: public sets by name, readers and encoders for tables, and splits of rows and columns."""

from evenhand.data.public.fetch import fetch
from evenhand.data.public.loaders import load
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.grouping import Grouping
from evenhand.data.tables.libsvm import read_libsvm, write_libsvm
from evenhand.data.tables.raw import one_row_per_id
from evenhand.data.tables.readers import TableSource, read_table
from evenhand.data.tables.stream import encode_parquet

__all__ = [
    "Grouping",
    "PartyEncoder",
    "TableSource",
    "encode_parquet",
    "fetch",
    "load",
    "one_row_per_id",
    "read_libsvm",
    "read_table",
    "write_libsvm",
]
