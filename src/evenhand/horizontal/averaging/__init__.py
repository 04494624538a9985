"""FedAvg and the methods built on it: a file for each, and the rounds they share."""

from evenhand.moved import keep_old_names

keep_old_names(__name__)
