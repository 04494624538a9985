"""VFB², Figure 4: loss over time and over epochs, nonconvex (problem 14), asynchronous and synchronous."""

from __future__ import annotations

from evenhand_reproductions.vfb2 import stragglers

compute, page = stragglers.experiment("14")
constants = stragglers.constants
