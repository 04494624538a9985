"""Combine known columns of scores, such as party directions or tree leaves, optimally under inequalities."""
