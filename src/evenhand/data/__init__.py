"""Data: public sets by name, a party's own tables, encoding, splits and alignment."""

from evenhand.data.clients import clients_by_column, dirichlet_clients, iid_clients, rows_of_clients, skewed_clients
from evenhand.data.images.arrays import as_floats, centre_crop, random_crop
from evenhand.data.public.catalog import CATALOG, PublicFile, PublicSet, lookup
from evenhand.data.public.dataset import Dataset, SparseDataset
from evenhand.data.public.fetch import SOURCES, default_cache, fetch
from evenhand.data.public.loaders import load
from evenhand.data.public.sparse_loaders import load_sparse
from evenhand.data.splits import (
    fold_numbers,
    held_out,
    split_columns,
    split_raw_columns,
    train_test_split_ids,
)
from evenhand.data.tables.align import align
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.libsvm import read_libsvm, write_libsvm
from evenhand.data.tables.party_tables import PartyTable, open_table
from evenhand.data.tables.readers import TableSource, read_table
from evenhand.data.tables.stream import encode_parquet, transform_parquet

__all__ = [
    "CATALOG",
    "SOURCES",
    "Dataset",
    "PartyEncoder",
    "PartyTable",
    "PublicFile",
    "PublicSet",
    "SparseDataset",
    "TableSource",
    "align",
    "as_floats",
    "centre_crop",
    "clients_by_column",
    "default_cache",
    "dirichlet_clients",
    "encode_parquet",
    "fetch",
    "fold_numbers",
    "held_out",
    "iid_clients",
    "load",
    "load_sparse",
    "lookup",
    "open_table",
    "random_crop",
    "read_libsvm",
    "read_table",
    "rows_of_clients",
    "skewed_clients",
    "split_columns",
    "split_raw_columns",
    "train_test_split_ids",
    "transform_parquet",
    "write_libsvm",
]
