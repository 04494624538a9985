"""Measure what messages disclose: attack them with each participant's own columns and received messages."""
