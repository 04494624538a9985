"""Training over clients that hold different rows of the same columns."""
