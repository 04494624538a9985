"""VFB², Figure 3: loss over time and over epochs, strongly convex (problem 13), asynchronous and synchronous."""

from __future__ import annotations

from evenhand_reproductions.vfb2 import stragglers

compute, page = stragglers.experiment("13")
constants = stragglers.constants
