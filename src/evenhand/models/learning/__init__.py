"""Learners: the kinds of models that a party may fit to a working response by weighted least squares."""
