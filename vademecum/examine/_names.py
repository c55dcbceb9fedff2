"""What sections can measure, by name: what a requirement may be about, before anything is run.

A section measures some of these, as the network and its data allow. The list stands by itself, and
needs no room, so that a slip of the pen is found before a process is started; a test holds it
against the sections' code.
"""

import difflib

__all__ = ["NAMES", "unknown_name"]

NAMES = {
    "anatomy": (
        "activation_bytes", "buffers", "calls", "frozen_parameters", "input_shape", "model_bytes",
        "modules", "multiply_adds", "multiply_adds_by_formula", "output_shape", "parameters",
        "peak_bytes", "receptive_field", "receptive_share", "receptive_stride", "tied_parameters",
        "tree", "unused_parameters",
    ),
    "signal": (
        "dead_share", "init_factor", "last_correlation", "last_second_moment", "layers",
        "prediction_gap", "proposed_init", "saturated_share", "vanishing_index", "worst_dead",
        "worst_saturated",
    ),
    "curvature": (
        "break_even_step", "critical_learning_rate", "eigenvalues", "gradient_noise_scale",
        "gradient_norm", "largest_eigenvalue", "loss", "negative_share", "smallest_eigenvalue",
        "trace",
    ),
    "kernel": (
        "alignment", "alignment_by_chance", "condition", "effective_rank", "largest_eigenvalue",
        "lazy_ratio", "left_to_learn", "median_steps", "own_accuracy", "rank", "steps",
        "steps_to_a_tenth", "trace", "twin_accuracy", "unlearnable_share",
    ),
    "geometry": (
        "flip_error", "linear_pieces", "linear_regions", "permutation_error",
        "pieces_between_examples", "plane_share", "shift_changes_answers", "shift_error",
        "turn_error",
    ),
    "generalisation": (
        "frobenius_bound", "gap", "median_margin", "pac_bayes_bound", "pac_bayes_kl", "path_bound",
        "spectral_bound", "tenth_margin", "test_error", "test_error_of_constant",
        "test_gain_over_constant", "test_loss", "test_squared_error", "train_error",
        "train_error_of_constant", "train_gain_over_constant", "train_loss", "train_squared_error",
    ),
    "robustness": (
        "accuracy", "certified_accuracy", "clean_accuracy", "curve_accuracy", "curve_radii",
        "lipschitz_lower", "lipschitz_upper", "masked", "masking_flags", "median_radius", "radius",
    ),
    "representations": (
        "best_layer", "best_score", "chance", "control_scores", "effective_ranks",
        "input_effective_rank", "last_effective_rank", "last_score", "layers", "least_hidden_rank",
        "lost_by_the_end", "probe_scores", "selectivity", "widths",
    ),
    "calibration": (
        "accuracy", "best_temperature", "brier", "brier_of_being_right", "calibration_error",
        "confidence", "dropout_log_loss", "log_loss", "log_loss_at_best", "mutual_information",
        "overconfidence", "plain_calibration_error", "reliability", "resolution", "uncertainty",
        "within_bins",
    ),
}  # fmt: skip
"""The measurements of each section, in the order of the alphabet."""


def unknown_name(section: str, name: str) -> str:
    """What is wrong with a measurement's name, and the nearest ones; nothing where it is right.

    Example:
        >>> unknown_name("kernel", "allignment")
        "the section kernel measures no 'allignment'; nearest: alignment, alignment_by_chance"
        >>> unknown_name("robustnes", "accuracy")
        "there is no section 'robustnes'; nearest: robustness"
        >>> unknown_name("robustness", "accuracy")
        ''
    """
    if section not in NAMES:
        return f"there is no section {section!r}; {_nearest(section, tuple(NAMES))}"
    if name in NAMES[section]:
        return ""
    elsewhere = [f"{other}.{name}" for other, names in NAMES.items() if name in names]
    near = f"there is {', '.join(elsewhere)}" if elsewhere else _nearest(name, NAMES[section])
    return f"the section {section} measures no {name!r}; {near}"


def _nearest(word: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(word, known, n=3)
    return f"nearest: {', '.join(near)}" if near else f"there are: {', '.join(known)}"
