"""A party's own tables: readers, encoding, alignment."""
