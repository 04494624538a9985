"""Models: scores of rows, and gradients in the weights."""
