"""Flower as transport: a long-lived server, and parties that run only while they handle a message."""
