"""What departs from the conventions, by room and rule, with its reason."""

__all__ = ["EXCEPTIONS"]

EXCEPTIONS = {
    ("bayes", "names"): {"deep_ensemble": "epochs of training, as `Bagging` has them"},
    ("bayes", "instruments"): {
        "posterior_predictive": "what it asks are samples, and some of them have a model of theirs",
    },
    ("bayes", "iterations"): {
        "sample": "makes all its draws, and tells afterwards whether chains agree",
    },
    ("foundations", "names"): {
        "log_det": "the Lanczos steps are all made: they set the degree of the quadrature",
        "spectral_density": "the Lanczos steps are all made: they set the degree of the quadrature",
        "convexity_violation": "a search that makes all its steps and does not converge",
        "lipschitz_constant": "a search that makes all its steps and does not converge",
        "smoothness_constant": "a search that makes all its steps and does not converge",
        "strong_convexity_constant": "a search that makes all its steps and does not converge",
    },
    ("connectionism", "names"): {
        "TuringMachine.run": "the ticks of a machine that never rests",
        "TuringMachine.educate": "the ticks after which the answer is read",
    },
    ("approximation", "instruments"): {
        "linear_regions": "looks at a plane of inputs, not at examples",
        "certify_regions": "looks at regions, not at examples",
        "regions_along": "looks at a segment between two inputs, not at examples",
        "count_regions": "looks at the whole space of inputs",
        "fit_readout": "builds a part on top of features; it measures nothing",
    },
    ("robustness", "iterations"): {
        "crown_bounds": "makes all its steps on slopes, and each of them gives bounds",
        "certified_accuracy": "makes all its steps on slopes, and each of them gives bounds",
    },
    ("robustness", "wordings"): {
        "crown_bounds": "makes all its steps on slopes, and warns of nothing",
        "certified_accuracy": "makes all its steps on slopes, and warns of nothing",
    },
    ("robustness", "names"): {
        "adversarial_loss": "the ascent makes all its steps: there is no point of convergence",
        **dict.fromkeys(
            ("pgd", "apgd", "auto_attack", "deepfool", "square"),
            "a search that makes all its steps, but for examples that are fooled earlier",
        ),
    },
    ("testing", "instruments"): {
        "check_part": "holds a part to its laws; it measures nothing",
    },
    ("models", "recurring_arguments"): {
        "chosen_output": "what it is about: which entry of a result",
        "Portions": "there is none without a limit",
    },
    ("models", "wordings"): {"Portions": "there is none without a limit"},
    ("models", "knobs"): {
        "call_with": "the arguments of a call, as in torch.func.functional_call",
        "named_leaves": "the name that places begin with, as in named_parameters",
        "named_tensors": "the name that places begin with, as in named_parameters",
    },
    ("models", "instruments"): {
        "load_weights": "fills a model from a file",
        "save_weights": "writes a model to a file",
        "call_with": "calls a model with other tensors",
        "run_with": "runs a function while a model has other tensors",
        "insist_on_place": "refuses inputs that lie elsewhere, by the name of the argument",
        **dict.fromkeys(
            ("aliases", "named_modules", "tensor_places", "unwrapped", "refuse_batch_statistics"),
            "looks at the module itself, without data",
        ),
        **dict.fromkeys(("constant", "evaluation", "following", "resting"), "a context for calls"),
    },
    ("models", "results"): {
        "call_arguments": "what a call takes: positions and names",
    },
    ("arrays", "recurring_arguments"): {"portions": "there are none without a limit"},
    ("arrays", "wordings"): {"portions": "the limit is of any unit, not only bytes"},
    ("estimators", "results"): {
        "as_labels": "two attributes of an estimator, set at once",
        "fitted_map": "two attributes of an estimator, set at once",
    },
    ("gradients", "instruments"): {
        "functional": "the model as a function: data come when that is called",
    },
    ("optimization", "names"): {
        "orthogonalize": "the steps are all made: their number is the degree of the polynomial",
        "Muon": "the steps are all made: their number is the degree of the polynomial",
        "certify_descent": "the steps of a theorem are all made, and nothing is said to converge",
    },
    ("attention", "knobs"): {
        "Transformer": "the sizes of the paper, by default and in the order of nn.Transformer",
    },
    ("language", "instruments"): {
        "generate": "goes on from tokens; it measures nothing",
        "stream_tokens": "goes on from tokens; it measures nothing",
        "few_shot": "data are examples and queries, in the order in which a model reads them",
    },
    ("geometry", "instruments"): {
        "symmetrize": "makes a module; it measures nothing",
        "wl_ceiling": "compares two graphs, each of which is an input of the model",
    },
    ("regularization", "instruments"): {
        "weight_noise": "makes a module; it measures nothing",
    },
    ("regularization", "names"): {
        "dynamical_isometry": "the Lanczos steps are all made, as in spectral_density",
    },
    ("generalization", "names"): {
        "rademacher_complexity": "a search that makes all its steps and does not converge",
    },
    ("generalization", "instruments"): {
        "align": "compares two models, a and b",
        "mode_connectivity": "goes from one model, a, to another, b",
    },
    ("generative", "recurring_arguments"): {
        "GAN": "the network that plays against the discriminator, as everybody calls it",
    },
    ("generative", "wordings"): {
        "GAN": "the network that plays against the discriminator, as everybody calls it",
    },
    ("generative", "names"): {
        **dict.fromkeys(
            ("DDPM.sample", "ddim_sample", "ddpm_sample", "reverse_sde_sample"),
            "the steps are all made: they are what the sampler visits",
        ),
    },
    ("generative", "instruments"): {
        **dict.fromkeys(
            ("ddim_sample", "ddpm_sample", "reverse_sde_sample"),
            "draws examples; it measures nothing",
        ),
    },
    ("kernels", "instruments"): {
        "empirical_ntk": "compares two samples, x1 and x2",
        "infinite_width": "reads an architecture; what it gives takes the inputs",
        "ntk_operator": "compares two samples, x1 and x2",
        "ntk_parametrize": "gives a model other coordinates; it measures nothing",
    },
    ("optimization", "instruments"): {
        "matrix_parameters": "splits parameters for optimisers; it measures nothing",
    },
}
