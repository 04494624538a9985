"""Data: public sets by name, a party's own tables, encoding, splits and alignment."""

from evenhand.data.align import align
from evenhand.data.biased import BiasedDigits, biased_digits, expected_unfairness
from evenhand.data.catalog import CATALOG, PublicFile, PublicSet, lookup
from evenhand.data.celeba import load_celeba
from evenhand.data.clients import clients_by_column, dirichlet_clients, iid_clients, rows_of_clients, skewed_clients
from evenhand.data.dataset import Dataset, SparseDataset
from evenhand.data.digits import DigitImages, fetch_digits, load_digit_images
from evenhand.data.encoding import PartyEncoder
from evenhand.data.fetch import SOURCES, default_cache, fetch
from evenhand.data.images import ImageDataset, as_floats, centre_crop, random_crop
from evenhand.data.imsitu import GenderRule, load_imsitu
from evenhand.data.libsvm import read_libsvm, write_libsvm
from evenhand.data.party_tables import PartyTable, open_table
from evenhand.data.recipes import load
from evenhand.data.sparse_recipes import load_sparse
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
from evenhand.data.stream import encode_parquet, transform_parquet
from evenhand.data.tables import TableSource, read_table

__all__ = [
    "CATALOG",
    "PAPER_ROWS",
    "PARTY_SIZES",
    "SOURCES",
    "BiasedDigits",
    "Dataset",
    "DigitImages",
    "GenderRule",
    "ImageDataset",
    "PartyEncoder",
    "PartyTable",
    "PublicFile",
    "PublicSet",
    "SparseDataset",
    "TableSource",
    "align",
    "as_floats",
    "biased_digits",
    "centre_crop",
    "clients_by_column",
    "default_cache",
    "dirichlet_clients",
    "encode_parquet",
    "expected_unfairness",
    "fetch",
    "fetch_digits",
    "fold_numbers",
    "held_out",
    "iid_clients",
    "load",
    "load_celeba",
    "load_digit_images",
    "load_imsitu",
    "load_sparse",
    "lookup",
    "open_table",
    "papers_split",
    "party_sizes",
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
