"""The commands of TeX that stand for one sign, by the kind of the sign.

The kind decides the space around it. The kinds are TeX's: `ord` a letter, `op` an operator before
its argument, `bin` a sign between two terms, `rel` a relation, `open` and `close` fences, `punct` a
comma, `inner` dots; `bar` is either fence.
"""

__all__ = [
    "ACCENTS", "ALPHABETS", "CHARACTERS", "COMMANDS", "FENCES", "FUNCTIONS", "LIMITS", "SPACES",
]  # fmt: skip

_SIGNS = {
    "ord": r"""
        alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι
        kappa κ lambda λ mu μ nu ν xi ξ pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ
        upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π
        Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω infty ∞ partial ∂ nabla ∇ top ⊤ bot ⊥ ell ℓ hbar ℏ
        imath ı jmath ȷ Re ℜ Im ℑ aleph ℵ forall ∀ exists ∃ nexists ∄ neg ¬ lnot ¬ emptyset ∅
        varnothing ∅ angle ∠ prime ′ vdots ⋮ square □ triangle △ star ⋆ checkmark ✓ # # % % & & _ _
        $ $ S § dagger †""",
    "op": r"""
        sum ∑ prod ∏ coprod ∐ int ∫ iint ∬ oint ∮ bigcup ⋃ bigcap ⋂ bigvee ⋁ bigwedge ⋀ bigoplus ⨁
        bigotimes ⨂ bigodot ⨀ biguplus ⨄""",
    "bin": r"""
        pm ± mp ∓ times × div ÷ cdot ⋅ ast ∗ circ ∘ bullet ∙ cup ∪ cap ∩ vee ∨ lor ∨ wedge ∧ land ∧
        setminus ∖ oplus ⊕ ominus ⊖ otimes ⊗ odot ⊙ uplus ⊎ sqcup ⊔ sqcap ⊓ bmod mod""",
    "rel": r"""
        le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ ll ≪ gg ≫ lesssim ≲ gtrsim ≳ equiv ≡ sim ∼ simeq ≃ cong ≅
        approx ≈ propto ∝ asymp ≍ in ∈ ni ∋ notin ∉ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇
        subsetneq ⊊ prec ≺ succ ≻ preceq ⪯ succeq ⪰ perp ⊥ parallel ∥ mid | models ⊨ vdash ⊢
        to → rightarrow → leftarrow ← gets ← leftrightarrow ↔ uparrow ↑ downarrow ↓ mapsto ↦
        Rightarrow ⇒ Leftarrow ⇐ Leftrightarrow ⇔ longrightarrow ⟶ longleftarrow ⟵ longmapsto ⟼
        Longrightarrow ⟹ Longleftarrow ⟸ Longleftrightarrow ⟺ implies ⟹ impliedby ⟸ iff ⟺
        rightsquigarrow ⇝ hookrightarrow ↪ nearrow ↗ searrow ↘ coloneqq ≔ triangleq ≜ doteq ≐""",
    "open": "{ { lbrace { lbrack [ langle ⟨ lfloor ⌊ lceil ⌈ lvert | lVert ‖ lparen (",
    "close": "} } rbrace } rbrack ] rangle ⟩ rfloor ⌋ rceil ⌉ rvert | rVert ‖ rparen )",
    "bar": "| ‖ Vert ‖ vert |",
    "punct": "colon :",
    "inner": "dots … ldots … cdots ⋯ ddots ⋱",
}
COMMANDS = {
    "\\" + name: (sign, kind)
    for kind, signs in _SIGNS.items()
    for name, sign in zip(signs.split()[::2], signs.split()[1::2], strict=True)
}
"""Commands: their sign and its kind."""
CHARACTERS = {
    "-": ("−", "bin"), "*": ("∗", "bin"), "+": ("+", "bin"), "|": ("|", "bar"), ":=": ("≔", "rel"),
    **{sign: (sign, "rel") for sign in "=<>:"}, **{sign: (sign, "punct") for sign in ",;"},
    **{sign: (sign, "open") for sign in "(["}, **{sign: (sign, "close") for sign in ")]!?"},
    **{sign: (sign, "ord") for sign in "/.@"},
}  # fmt: skip
"""Characters that are not letters: their sign and its kind."""
FENCES = frozenset("()[]{}⟨⟩⌊⌋⌈⌉|‖")
"""Signs that can grow with what they enclose."""
_NAMES = {
    "below": "max min sup inf lim limsup liminf argmax argmin det Pr gcd",
    "beside": "log ln lg exp sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arg "
    "deg dim hom ker",
}
LIMITS = frozenset(_NAMES["below"].split())
"""Functions whose index stands underneath in a displayed formula."""
FUNCTIONS = LIMITS | frozenset(_NAMES["beside"].split())
"""Functions that are commands."""
SPACES = {",": 3, ":": 4, ">": 4, ";": 5, " ": 5, "quad": 18, "qquad": 36, "thinspace": 3}
"""In eighteenths of an em."""
ACCENTS = {
    "hat": "ˆ", "tilde": "˜", "bar": "¯", "vec": "→", "dot": "˙", "ddot": "¨", "check": "ˇ",
    "breve": "˘", "widehat": "\u0302", "widetilde": "\u0303", "overline": "‾", "underline": "_",
}  # fmt: skip
"""The sign over, or under, a letter."""
ALPHABETS = {
    "mathrm": "", "mathit": "ITALIC", "mathbf": "BOLD", "mathbb": "DOUBLE-STRUCK",
    "mathsf": "SANS-SERIF", "mathcal": "SCRIPT", "mathscr": "SCRIPT", "mathfrak": "FRAKTUR",
    "mathtt": "MONOSPACE", "boldsymbol": "BOLD ITALIC", "bm": "BOLD ITALIC",
}  # fmt: skip
"""The names that Unicode gives to the alphabets of mathematics."""
