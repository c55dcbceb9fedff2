"""What makes networks train and generalise: initialisation, normalisation, noise, averages.

A signal that crosses many layers must neither vanish nor explode: *mean-field theory* predicts its
variance and correlation layer by layer. *Decay* and early stopping shrink the directions that the
data hardly see; *dropout*, bagging and augmentation average over many networks or inputs; pretext
tasks and distillation give targets that cost nothing.
"""

__all__ = [
]  # fmt: skip
