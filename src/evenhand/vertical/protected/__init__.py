"""Layers around roles that keep from others what a solver's own messages would tell them.

A solver is written once, as published. A layer is a role around a role: what comes out of the inner one is masked,
hidden or encrypted before it is sent, and what goes in is opened before it is handed on (`layer.py`).

- `masking.py`: the server learns sums over the passive parties and nothing of one. To the solver they are one party.
- `products.py`: a passive party is told X_kᵀν in place of ν, in fixed point: by Beaver triples (`dealing.py`) or under
  encryption (`encrypting.py`).
- `guarding.py` refuses what no protection can hide.
- `build.py` puts roles together by the terms.
"""
