"""Layers around roles that hide a solver's own messages from other participants.

A solver is written once, as published. A layer is a role around a role (`layer.py`). It masks, hides or encrypts the
messages of the inner role before they are sent, and opens received messages before it hands them on.

- `masking.py`: the server learns sums over the passive parties, and nothing of a single one. The solver sees one party.
- `products.py`: a passive party receives X_kᵀν in place of ν, in fixed point: by Beaver triples (`dealing.py`) or under
  encryption (`encrypting.py`).
- `guarding.py` refuses columns that no protection can hide.
- `build.py` builds roles by the terms.
"""
