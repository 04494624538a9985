"""FedAvg and methods based on it: one module for each, and the rounds that they share."""
