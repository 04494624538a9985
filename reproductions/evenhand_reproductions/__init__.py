"""Reproduce the tables and figures of the papers, with the papers' numbers beside ours.

A reproduction is a module with `compute` (train, and return records: plain numbers) and `page` (records to tables,
notes and a figure). The records are kept beside the page, so that a page can be written again without training.
"""

from evenhand_reproductions.registry import REPRODUCTIONS, Reproduction, find

__all__ = ["REPRODUCTIONS", "Reproduction", "find"]
