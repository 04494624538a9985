"""Constrained programs over clients: the interface, and ready-made programs."""

from evenhand.constraints.labelled_rows import FeatureRows
from evenhand.constraints.slices import NO_BOUNDS, Bounds
from evenhand.programs.classification import Federated, constrained, neyman_pearson
from evenhand.programs.optimality import Residual, Solution, SolveStatus, measure
from evenhand.programs.pooled import Pooled
from evenhand.programs.program import Program, ProgramPoint, SmoothProgram
from evenhand.programs.quadratic import QuadraticProgram, random_quadratic_programs
from evenhand.programs.regularisers import L1, ZERO, Ball, Box, Regulariser, Zero
from evenhand.programs.slices import SliceProgram
from evenhand.programs.torch_program import TorchProgram

__all__ = [
    "L1",
    "NO_BOUNDS",
    "ZERO",
    "Ball",
    "Bounds",
    "Box",
    "FeatureRows",
    "Federated",
    "Pooled",
    "Program",
    "ProgramPoint",
    "QuadraticProgram",
    "Regulariser",
    "Residual",
    "SliceProgram",
    "SmoothProgram",
    "Solution",
    "SolveStatus",
    "TorchProgram",
    "Zero",
    "constrained",
    "measure",
    "neyman_pearson",
    "random_quadratic_programs",
]
