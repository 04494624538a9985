"""Jobs from files: reading and checking them, loading their tables, running them, and scoring with what they left."""
