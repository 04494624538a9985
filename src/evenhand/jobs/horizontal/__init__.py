"""Job files and runs over tables that hold different rows of the same columns."""
