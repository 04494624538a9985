"""Data sets of the papers: digits, biased digits, CelebA, imSitu, and tables of the proximal-AL paper."""
