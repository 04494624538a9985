"""Federated learning under global and local constraints by proximal AL: tables and figures."""
