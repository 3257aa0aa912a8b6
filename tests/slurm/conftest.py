"""The fixture `slurm`."""

from local_slurm import slurm

__all__ = ["slurm"]
