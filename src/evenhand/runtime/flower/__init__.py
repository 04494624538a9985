"""Flower as transport: a server that lasts as long as a run, and parties that are visited."""
