"""A loaded data set: features, label and sensitive attributes, all with the same row ids."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd


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
