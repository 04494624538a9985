"""Job files and runs over tables that hold different people."""
