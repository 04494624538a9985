"""Sequential quadratic programming across clients."""

from evenhand.horizontal.sqp.options import SQP
from evenhand.horizontal.sqp.solver import SOLVER

__all__ = ["SOLVER", "SQP"]
