"""Measure the cost of private alignment for each party: process time for its own ids, and for the ids of another.

python benchmarks/aligning_privately.py
"""

from __future__ import annotations

import time

import pandas as pd

from evenhand.privacy.private_align import PrivateAlignParty
from evenhand.protocol.align import AlignParty

IDS = 2_000


def main() -> None:
    ids = pd.Index([f"customer {number}" for number in range(IDS)])
    ring = ["bank", "shop"]
    bank, shop = (PrivateAlignParty(name, ids, ring) for name in ring)
    began = time.process_time()
    (passed,) = bank.start()
    first = time.process_time() - began
    shop.start()
    began = time.process_time()
    shop.receive(passed)
    other = time.process_time() - began
    began = time.process_time()
    (plain,) = AlignParty("bank", ids).start()
    sums = time.process_time() - began
    print(f"{IDS:,} ids, two parties, one thread")
    print(f"first pass       {1e6 * first / IDS:7.0f} µs an id ({first / sums:,.0f} × the sums of a plain alignment)")
    print(f"further passes   {1e6 * other / IDS:7.0f} µs an id")
    print(f"bytes            {passed.nbytes / IDS:7.1f} an id and pass; plain: {plain.nbytes / IDS:.1f}, once")


if __name__ == "__main__":
    main()
