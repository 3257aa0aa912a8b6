"""goatbench: compares attention mechanisms on vision, genome and text with one shared attention core.

Importing this package imports no torch: `goatbench leaderboard` must answer in a fraction of a second.
"""

__version__ = "0.1.0"
