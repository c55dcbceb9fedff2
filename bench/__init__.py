"""Ours against the libraries a user would pick instead, as ratios measured in one run."""
