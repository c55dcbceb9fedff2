"""How the documentation is built: `sphinx-build -W docs docs/_build`.

Pages are Markdown (MyST). Maths becomes MathML while building (`mathml.py`), which browsers typeset
themselves, so neither the build nor the pages need a network. Docstrings are Markdown with Google
sections; `docstrings.py` turns them into what autodoc reads.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import vademecum

project = "Vademecum"
author = "the Vademecum authors"
version = release = vademecum.__version__

extensions = [
    *("myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"),
    *("docstrings", "links", "mathml", "room_pages", "source_pages"),
]
exclude_patterns = ["_build"]

html_theme = "furo"
html_static_path = [
    "_static",
    *[f"../vademecum/typeset/font/maths.{kind}" for kind in ("css", "woff", "txt")],
]
html_css_files = ["maths.css", "pages.css"]
html_title = f"Vademecum {release}"
html_show_copyright = False
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_ivar = True
