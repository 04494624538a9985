"""A loaded data set: features, label and sensitive attributes, all with the same row ids."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from evenhand.arrays import Booleans, Matrix


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows ready to be shared out between parties.

    Attributes
    ----------
    name : the catalog's name of the set.
    frame : features before encoding. Text columns are pandas categories that carry every level of the set, so that
        an encoder fitted on any training rows gives the same columns.
    label : one value for each row.
    positive : the label value that counts as the positive (in the papers: protected) class.
    sensitive : one column for each sensitive attribute.
    description : what the rows are, where they come from and on what terms.
    """

    name: str
    frame: pd.DataFrame
    label: pd.Series
    positive: str | int
    sensitive: pd.DataFrame
    description: str


@dataclass(frozen=True, eq=False)
class SparseDataset:
    """Rows whose features are many and mostly zero, as a sparse matrix in place of a frame.

    Attributes
    ----------
    name : the catalog's name of the set.
    matrix : features, a :class:`scipy.sparse.csr_array` of float64 with int32 indices; its rows are those of `label`.
    label : one value for each row.
    positive : the label value that counts as the positive class.
    sensitive : one column for each sensitive attribute; no column where the set has none.
    test : which rows the publisher sets aside for testing.
    description : what the rows are, where they come from and on what terms.
    """

    name: str
    matrix: Matrix
    label: pd.Series
    positive: str | int
    sensitive: pd.DataFrame
    test: Booleans
    description: str
