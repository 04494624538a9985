"""Constrained programs spread over clients: the interface, and the programs that come with it."""

from evenhand.programs.classification import Federated, Sample, constrained, neyman_pearson
from evenhand.programs.optimality import Residual, Solution, Status, measure
from evenhand.programs.pooled import Pooled
from evenhand.programs.program import Point, Program, SmoothProgram
from evenhand.programs.quadratic import QuadraticProgram, random_quadratic_programs
from evenhand.programs.sides import NO_SIDES, Sides
from evenhand.programs.simple import L1, NOTHING, Ball, Box, Nothing, Simple
from evenhand.programs.slices import SliceProgram
from evenhand.programs.torch_program import TorchProgram

__all__ = [
    "L1",
    "NOTHING",
    "NO_SIDES",
    "Ball",
    "Box",
    "Federated",
    "Nothing",
    "Point",
    "Pooled",
    "Program",
    "QuadraticProgram",
    "Residual",
    "Sample",
    "Sides",
    "Simple",
    "SliceProgram",
    "SmoothProgram",
    "Solution",
    "Status",
    "TorchProgram",
    "constrained",
    "measure",
    "neyman_pearson",
    "random_quadratic_programs",
]
