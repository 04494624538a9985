"""Server and client of masked sums."""

from evenhand.horizontal.masked.client import MaskedClient
from evenhand.horizontal.masked.server import SummingServer

__all__ = ["MaskedClient", "SummingServer"]
