"""Package data; see README.md of the project."""
