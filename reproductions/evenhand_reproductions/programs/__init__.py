"""Constrained programs across clients: the general problem of proximal AL Eq. 5, from one import.

`docs/programs.md` is the how-to.
"""

from evenhand.constraints.slices import Bounds
from evenhand_reproductions.programs.pooled import Pooled
from evenhand_reproductions.programs.problems import constrained, neyman_pearson, random_quadratic_programs
from evenhand_reproductions.programs.quadratic import QuadraticProgram
from evenhand_reproductions.programs.regularisers import L1, Ball, Box
from evenhand_reproductions.programs.smooth import SmoothProgram
from evenhand_reproductions.programs.solving import Solution, measure, prox_al, sqp
from evenhand_reproductions.programs.torch_program import TorchProgram

__all__ = [
    "L1",
    "Ball",
    "Bounds",
    "Box",
    "Pooled",
    "QuadraticProgram",
    "SmoothProgram",
    "Solution",
    "TorchProgram",
    "constrained",
    "measure",
    "neyman_pearson",
    "prox_al",
    "random_quadratic_programs",
    "sqp",
]
