"""DNA from FASTA files as arrays of one-byte codes. Start with `source` (GenomeSource), then `splits` and `windows`.

Only `windows` needs torch. Coordinates are 0-based and half-open everywhere; genome.ucsc is for people.
"""
