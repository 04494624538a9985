"""Load public sets with sparse features: LIBSVM's a9a, and 20 Newsgroups as words and pairs of words.

Row ids are 0, 1, ...: the publisher's training rows first, then its test rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy import sparse

from evenhand.arrays import Booleans, Matrix
from evenhand.data.public.catalog import CATALOG, lookup
from evenhand.data.public.fetch import default_cache, fetch
from evenhand.data.tables.libsvm import read_libsvm
from evenhand.errors import DataError, InputError
from evenhand_reproductions.data.newsgroups import load_newsgroups, positive_rows

_A9A_COLUMNS: Final = 123
# LIBSVM's index of "Female", which counts from 1; "Male" is the next.
_A9A_FEMALE: Final = 72
# Five of the twenty newsgroups and a quarter of the messages: neither rare nor trivial.
_NEWSGROUPS_POSITIVE: Final = "comp"
_NEWSGROUPS_KEPT: Final = "words-and-pairs.npz"

Parts = tuple[Matrix, pd.Series, str | int, pd.DataFrame, Booleans]


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


def load_sparse(name: str, *, positive: str | None = None, **fetch_options: Any) -> SparseDataset:
    """Fetch a public set with sparse features and clean it.

    Parameters
    ----------
    name : ``a9a`` or ``20newsgroups``.
    positive : for 20 Newsgroups, the positive class against all others: a newsgroup such as ``sci.med``, or a family
        of them. By default ``comp``, the five newsgroups on computers.
    fetch_options : those of :func:`evenhand.data.fetch`.
    """
    entry = lookup(name)
    if entry.form != "sparse":
        known = ", ".join(name for name, other in CATALOG.items() if other.form == "sparse")
        raise InputError(f"{entry.name} is a table, not a sparse matrix as {known}: use evenhand.data.load")
    if positive is not None and entry.name != "20newsgroups":
        raise InputError(f"positive chooses newsgroups; {entry.name} has two labels of its own")
    files = fetch(entry, **fetch_options)
    cache = Path(fetch_options.get("cache") or default_cache()) / entry.name
    matrix, label, chosen, sensitive, test = _RECIPES[entry.name](files, cache, positive)
    # Checksums hold, so this can fail only if a library reads the files differently.
    if matrix.shape[0] != entry.rows:
        raise DataError(f"the recipe of {entry.name} gave {matrix.shape[0]:,} rows instead of {entry.rows:,}")
    description = f"{entry.title}: {matrix.shape[0]:,} rows. {entry.citation} Terms: {entry.terms}"
    return SparseDataset(entry.name, matrix, label, chosen, sensitive, test, description)


def _a9a(files: Mapping[str, Path], cache: Path, positive: str | None) -> Parts:
    parts = [read_libsvm(files[name], _A9A_COLUMNS, first_index=1) for name in ("a9a", "a9a.t")]
    matrix = sparse.csr_array(sparse.vstack([rows for rows, _ in parts], format="csr"))
    ids = pd.RangeIndex(matrix.shape[0], name="row")
    label = pd.Series(np.concatenate([labels for _, labels in parts]).astype(np.int64), ids, name="income")
    female = matrix[:, [_A9A_FEMALE - 1]].toarray().ravel() > 0
    sex = pd.Series(np.where(female, "Female", "Male"), ids, name="sex")
    return matrix, label, 1, sex.to_frame(), np.arange(len(ids)) >= parts[0][0].shape[0]


def _newsgroups(files: Mapping[str, Path], cache: Path, positive: str | None) -> Parts:
    made = load_newsgroups(files["20news-bydate.tar"], cache / _NEWSGROUPS_KEPT)
    chosen = _NEWSGROUPS_POSITIVE if positive is None else positive
    ids = pd.RangeIndex(made.matrix.shape[0], name="row")
    label = pd.Series(np.where(positive_rows(made.newsgroups, chosen), chosen, "rest"), ids, name="newsgroup")
    return made.matrix, label, chosen, pd.DataFrame(index=ids), made.test


_RECIPES: Final[dict[str, Callable[[Mapping[str, Path], Path, str | None], Parts]]] = {
    "a9a": _a9a,
    "20newsgroups": _newsgroups,
}
