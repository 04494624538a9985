"""Data: public sets by name, readers and encoders for tables, and splits of rows and columns."""

from evenhand.data.clients import clients_by_column, dirichlet_clients, iid_clients, skewed_clients
from evenhand.data.public.dataset import Dataset, SparseDataset
from evenhand.data.public.fetch import fetch
from evenhand.data.public.loaders import load
from evenhand.data.public.sparse_loaders import load_sparse
from evenhand.data.splits import split_columns
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.libsvm import read_libsvm, write_libsvm
from evenhand.data.tables.readers import TableSource, read_table

__all__ = [
    "Dataset",
    "PartyEncoder",
    "SparseDataset",
    "TableSource",
    "clients_by_column",
    "dirichlet_clients",
    "fetch",
    "iid_clients",
    "load",
    "load_sparse",
    "read_libsvm",
    "read_table",
    "skewed_clients",
    "split_columns",
    "write_libsvm",
]
