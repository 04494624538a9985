"""Proximal augmented Lagrangian method with inexact ADMM across clients."""

from evenhand.horizontal.prox_al.options import ProxAL
from evenhand.horizontal.prox_al.solver import SOLVER

__all__ = ["SOLVER", "ProxAL"]
