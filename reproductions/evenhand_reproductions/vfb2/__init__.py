"""VFB²: tables and figures."""
