"""Data files only, and the script that made them."""
