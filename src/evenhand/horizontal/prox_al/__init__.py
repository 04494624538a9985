"""Programs across clients by a proximal augmented Lagrangian method with inexact ADMM."""

from evenhand.horizontal.prox_al.options import ProxALOptions
from evenhand.horizontal.prox_al.solve import prox_al, prox_al_roles
from evenhand.moved import keep_old_names

__all__ = ["ProxALOptions", "prox_al", "prox_al_roles"]

keep_old_names(__name__)
