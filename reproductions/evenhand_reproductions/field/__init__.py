"""Baselines of the field beside what their authors print, where data and numbers can be had."""
