"""VFB², Figure 4: loss over time and over epochs, nonconvex (problem 14), asynchronous and synchronous."""

from __future__ import annotations

from evenhand.reproductions.vfb2.stragglers import experiment

compute, page = experiment("14")
