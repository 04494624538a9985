"""The reproductions by name. Modules are loaded on use, so that the list is shown quickly."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from evenhand.errors import InputError
from evenhand_reproductions.constrained.numbers import FAIRNESS_SET, NEYMAN_PEARSON_SETS, QUADRATIC_SET
from evenhand_reproductions.papers import FAIRFEDAVGALM_SETS, FAIRVFL_SETS, VFB2_SETS

if TYPE_CHECKING:
    import pandas as pd

    from evenhand_reproductions.settings import Meter, Record, Settings
    from evenhand_reproductions.writing import Page


class Experiment(Protocol):
    """What a module of a table or figure provides."""

    def compute(self, settings: Settings, meter: Meter) -> list[Record]: ...

    def constants(self, name: str) -> Record:
        """What the numbers of a set hang on besides seeds: records are put on one page only where it is the same."""
        ...

    def page(self, records: pd.DataFrame) -> Page: ...


@dataclass(frozen=True)
class Reproduction:
    """A table or figure: its name, what it shows in a line, and the module that makes it."""

    name: str
    title: str
    module: str
    sets: tuple[str, ...] = FAIRVFL_SETS
    """Those it is about, unless the user says otherwise."""
    more_sets: tuple[str, ...] = ()
    """Those it can be run on as well."""

    def load(self) -> Experiment:
        return cast(Experiment, import_module(f"evenhand_reproductions.{self.module}"))


_FACES = ("celeba",)
_CONSTRAINED = "Constrained FL by proximal AL"
_STRAGGLER_SETS = ("credit-default", "give-me-some-credit", "a9a", "20newsgroups")
_PRIVACY_SETS = ("adult", "compas", "give-me-some-credit")
_ENTRIES = (
    Reproduction(
        "fairvfl-table1", "FairVFL, Table 1: accuracy and gaps in error rates, linear model", "fairvfl.table1"
    ),
    Reproduction("fairvfl-table2", "FairVFL, Table 2 and Figure 2: neural parties", "fairvfl.table2"),
    Reproduction("fairvfl-learners", "FairVFL, Table 2 and Figure 2, by our learners", "fairvfl.learned"),
    Reproduction("fairvfl-fig1", "FairVFL, Figure 1: objective and DEO over rounds, linear model", "fairvfl.fig1"),
    Reproduction("fairvfl-v1-table1", "first version, Table I: accuracy, fairness, harmonic mean", "fairvfl.v1_table1"),
    Reproduction("fairvfl-v1-fig1", "first version, Figure 1: effect of ε on accuracy and fairness", "fairvfl.v1_fig1"),
    Reproduction(
        "fairvfl-v1-fig2", "first version, Figure 2: effect of the number Q of local steps", "fairvfl.v1_fig2"
    ),
    Reproduction("fairvfl-theorem", "FairVFL, the steps of Theorem 2", "fairvfl.theorem"),
    Reproduction("fairvfl-async", "FairVFL, Algorithm 2: as many local steps as time allows", "fairvfl.asynchronous"),
    Reproduction(
        "vfb2-table2", "VFB², Table 2: accuracy beside pooled and half-trained models", "vfb2.table2", VFB2_SETS
    ),
    Reproduction(
        "vfb2-step",
        "VFB², the paper's own step beside ours",
        "vfb2.step",
        ("credit-default", "give-me-some-credit", "a9a"),
    ),
    Reproduction("vfb2-theorems", "VFB², the steps of Theorems 1 to 6", "vfb2.theorems", ("credit-default",), ("a9a",)),
    Reproduction("vfb2-fig2", "VFB², Figure 2: speed-up by the number of parties", "vfb2.fig2", ("synthetic",)),
    Reproduction(
        "vfb2-fig3", "VFB², Figure 3: loss over time and epochs, strongly convex", "vfb2.fig3", _STRAGGLER_SETS
    ),
    Reproduction("vfb2-fig4", "VFB², Figure 4: loss over time and epochs, nonconvex", "vfb2.fig4", _STRAGGLER_SETS),
    Reproduction("vfb2-threads", "VFB² in real threads with a straggler", "vfb2.threads", _STRAGGLER_SETS[:2]),
    *(
        Reproduction(f"constrained-{name}", f"{_CONSTRAINED}, {title}", f"constrained.{name}", sets)
        for name, title, sets in (
            ("table1", "Table 1: Neyman-Pearson classification", NEYMAN_PEARSON_SETS),
            ("table2", "Table 2: fairness constraints", (FAIRNESS_SET,)),
            ("table4", "Table 4: quadratic programs", (QUADRATIC_SET,)),
            ("fig1", "Figure 1: Neyman-Pearson classification over rounds", NEYMAN_PEARSON_SETS),
            ("fig2", "Figure 2: fairness constraints over rounds", (FAIRNESS_SET,)),
        )
    ),
    *(
        Reproduction(f"fairfedavgalm-{name}", f"FairFedAvgALM, {title}", f"fairfedavgalm.{name}", sets, more)
        for name, title, sets, more in (
            ("baselines", "Table 2: five methods and ours", (*FAIRFEDAVGALM_SETS, "symmetric-digits"), _FACES),
            ("heterogeneity", "Table 3: skew of the clients' labels", FAIRFEDAVGALM_SETS, _FACES),
            ("clients", "Table 4: number of clients", FAIRFEDAVGALM_SETS, _FACES),
            ("ldp", "Table 5: noise on the updates", FAIRFEDAVGALM_SETS, _FACES),
            ("activities", "Table 6: many classes, judged on pairs", ("digit-pairs",), ("imsitu",)),
            ("participation", "supplement Table 1: share of clients a round", FAIRFEDAVGALM_SETS, _FACES),
            ("fig1", "Figure 1: what the models look at", ("framed-digits",), ("biased-digits", *_FACES)),
            ("settings", "how steps and rounds were chosen", FAIRFEDAVGALM_SETS, ()),
            ("theorem", "the steps of Theorem 4.2", ("adult",), ("biased-digits", *_FACES)),
        )
    ),
    Reproduction("field", "Baselines of the field beside their authors' numbers", "field.page", FAIRVFL_SETS),
    Reproduction(
        "privacy", "What each protection hides, and what it costs", "privacy.levels", _PRIVACY_SETS, FAIRVFL_SETS[2:]
    ),
)
REPRODUCTIONS = {entry.name: entry for entry in _ENTRIES}


def find(name: str) -> Reproduction:
    if name not in REPRODUCTIONS:
        raise InputError(f"there is no reproduction {name!r}; there is {', '.join(REPRODUCTIONS)}")
    return REPRODUCTIONS[name]
