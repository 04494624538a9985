"""Constrained programs over clients: the interface of `prox-al` and `sqp`, and programs of slice means."""
