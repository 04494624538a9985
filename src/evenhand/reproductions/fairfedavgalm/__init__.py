"""FairFedAvgALM: tables and figures."""
