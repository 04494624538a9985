"""Flower as a messenger: a server that lasts as long as a run, parties that are visited."""
