"""Programs across clients by a proximal augmented Lagrangian method with inexact ADMM."""

from evenhand.horizontal.prox_al.options import ProxALOptions
from evenhand.horizontal.prox_al.solver import SOLVER
from evenhand.moved import keep_old_names

__all__ = ["SOLVER", "ProxALOptions"]

keep_old_names(__name__)
