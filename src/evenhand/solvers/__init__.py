"""The registry of solvers for both splits, with an options class for each solver.

An estimator takes a solver by name or as an object of its options class, so that a grid can tune the options:
``VerticalClassifier(solver=Subspace(history=8))`` has the parameter ``solver__history``.
"""

from evenhand.horizontal.averaging.build import FedAvg
from evenhand.horizontal.averaging.fairalm import FairALM
from evenhand.horizontal.averaging.fairfed import FairFed
from evenhand.horizontal.averaging.fairfedavgalm import FairFedAvgALM
from evenhand.horizontal.averaging.fpfl import FPFL
from evenhand.horizontal.prox_al.options import ProxAL
from evenhand.horizontal.sqp.options import SQP
from evenhand.models.growth import HistogramTrees
from evenhand.protocol.solver import Solver
from evenhand.solvers.registry import HORIZONTAL, VERTICAL, register
from evenhand.vertical.fairvfl_schedule import FairVFL
from evenhand.vertical.fedbcd import FedBCD
from evenhand.vertical.learners.options import Learners
from evenhand.vertical.subspace.party import Subspace
from evenhand.vertical.trees.options import Trees
from evenhand.vertical.vfb2.options import AFSAGAVP, AFSGDVP, AFSVRGVP, VFB2SAGA, VFB2SGD, VFB2SVRG

__all__ = [
    "AFSAGAVP",
    "AFSGDVP",
    "AFSVRGVP",
    "FPFL",
    "HORIZONTAL",
    "SQP",
    "VERTICAL",
    "VFB2SAGA",
    "VFB2SGD",
    "VFB2SVRG",
    "FairALM",
    "FairFed",
    "FairFedAvgALM",
    "FairVFL",
    "FedAvg",
    "FedBCD",
    "HistogramTrees",
    "Learners",
    "ProxAL",
    "Solver",
    "Subspace",
    "Trees",
    "register",
]
