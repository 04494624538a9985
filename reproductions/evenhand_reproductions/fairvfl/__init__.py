"""FairVFL and its first version: tables and figures."""
