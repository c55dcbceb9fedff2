"""Signs that gradients are hidden from attacks rather than small."""

from vademecum.robustness.masking.signs import Masking, MaskingTest, gradient_masking

__all__ = ["Masking", "MaskingTest", "gradient_masking"]
