"""About 8.7 Mb of human DNA, two bits a base, with its manifest and split. `build.py` says how it was made, README.md from what."""
