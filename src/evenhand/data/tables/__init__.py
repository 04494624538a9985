"""A party's own tables: readers, encoding, alignment."""

from evenhand.moved import keep_old_names

keep_old_names(__name__)
