"""Layers around roles that hide a solver's own messages from other participants.

A solver is written once, as published. A layer is a role around a role (`layer.py`). It masks, hides or encrypts the
messages of the inner role before they are sent, and opens received messages before it hands them on.

- `masking.py`: the server learns sums over the passive parties, and nothing of a single one. The solver sees one party.
- `sharing.py`: on shared weights a passive party learns nothing of the labels. Products come by Beaver triples of a
  dealer (`dealing.py`) or by encryption (`encrypting.py`). `trail.py` has the public part: which combination of
  directions the weights are.
- `guarding.py` refuses columns that no protection can hide.
- `build.py` builds roles by the terms.
"""
