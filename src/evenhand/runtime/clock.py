"""The virtual clock: how long computing and sending would take on machines and links of given speeds.

The virtual clock exists only in simulation. A run on a thousand slow machines is simulated exactly, and reproducibly,
in one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evenhand.errors import InputError


@dataclass(frozen=True)
class VirtualClock:
    """Speeds of roles and links.

    Parameters
    ----------
    speed
        Multiplications a second of a role that `speeds` does not name.
    latency
        Seconds that a message of any size takes, unless `latencies` names one of its two ends.
    bandwidth
        Bytes a second of every link.
    """

    speed: float = 1e9
    latency: float = 0.0
    bandwidth: float = float("inf")
    speeds: Mapping[str, float] = field(default_factory=dict)
    latencies: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in {"speed": self.speed, "bandwidth": self.bandwidth, **dict(self.speeds)}.items():
            if not value > 0:
                raise InputError(f"virtual clock: {name} is {value}; it must be positive")
        for name, value in {"latency": self.latency, **dict(self.latencies)}.items():
            if not value >= 0:
                raise InputError(f"virtual clock: latency {name} is {value}; it must be zero or more")

    def computing(self, role: str, effort: float) -> float:
        return effort / self.speeds.get(role, self.speed)

    def sending(self, sender: str, receiver: str, nbytes: int) -> float:
        latency = self.latency
        if self.latencies:
            latency = max((self.latencies[end] for end in (sender, receiver) if end in self.latencies), default=latency)
        return latency + nbytes / self.bandwidth
