"""A loaded data set: raw features, label and sensitive attributes, all indexed by the same row ids."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd


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
