"""The scan of a linear recurrence, on the CPU and on CUDA devices, with all its derivatives."""

from vademecum.recurrence.linear_scan.scanning import scan

__all__ = ["scan"]
