"""Data: public sets by name, a party's own tables, encoding, splits and alignment."""

from evenhand.data.align import align
from evenhand.data.catalog import CATALOG, PublicFile, PublicSet, lookup
from evenhand.data.dataset import Dataset
from evenhand.data.encoding import PartyEncoder
from evenhand.data.fetch import SOURCES, default_cache, fetch
from evenhand.data.recipes import load
from evenhand.data.splits import (
    PAPER_ROWS,
    PARTY_SIZES,
    fold_numbers,
    held_out,
    papers_split,
    party_sizes,
    split_columns,
    split_raw_columns,
    train_test_split_ids,
)
from evenhand.data.tables import TableSource, read_table

__all__ = [
    "CATALOG",
    "PAPER_ROWS",
    "PARTY_SIZES",
    "SOURCES",
    "Dataset",
    "PartyEncoder",
    "PublicFile",
    "PublicSet",
    "TableSource",
    "align",
    "default_cache",
    "fetch",
    "fold_numbers",
    "held_out",
    "load",
    "lookup",
    "papers_split",
    "party_sizes",
    "read_table",
    "split_columns",
    "split_raw_columns",
    "train_test_split_ids",
]
