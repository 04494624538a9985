"""A loaded data set: features, label and sensitive attributes, all with the same row ids."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from evenhand.arrays import Booleans, Matrix


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table of features with labels and sensitive attributes.

    Attributes
    ----------
    name : the catalog's name of the set.
    frame : features before encoding. Text columns are pandas categories with every level of the set, so that an
        encoder gives the same columns whatever training rows it is fitted on.
    label : one value for each row.
    positive : the label value that counts as the positive (in the papers: protected) class.
    sensitive : one column for each sensitive attribute.
    description : title, number of rows, citation and terms of use.
    """

    name: str
    frame: pd.DataFrame
    label: pd.Series
    positive: str | int
    sensitive: pd.DataFrame
    description: str


@dataclass(frozen=True, eq=False)
class SparseDataset:
    """A sparse matrix of features with labels and sensitive attributes.

    Attributes
    ----------
    name : the catalog's name of the set.
    matrix : features, a :class:`scipy.sparse.csr_array` of float64 with int32 indices; its rows are those of `label`.
    label : one value for each row.
    positive : the label value that counts as the positive class.
    sensitive : one column for each sensitive attribute; none if the set has none.
    test : whether each row is one of the publisher's test rows.
    description : title, number of rows, citation and terms of use.
    """

    name: str
    matrix: Matrix
    label: pd.Series
    positive: str | int
    sensitive: pd.DataFrame
    test: Booleans
    description: str
