"""VFB², Figure 3: loss over time and over epochs, strongly convex (problem 13), asynchronous and synchronous."""

from __future__ import annotations

from evenhand.reproductions.vfb2.stragglers import experiment

compute, page = experiment("13")
