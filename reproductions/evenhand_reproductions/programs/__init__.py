"""Programs of the proximal-AL paper, and how to solve them across clients or pooled."""
