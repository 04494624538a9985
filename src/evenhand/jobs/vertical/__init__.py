"""Job files and runs over tables that hold different columns of the same rows."""
