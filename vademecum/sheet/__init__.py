"""The course's formula sheet for print, made from the claims and from what a run of them found.

`sheet` is the whole of it as one HTML file, without scripts and without requests; `print_pdf` has
an installed Chromium print it.
"""

from vademecum.sheet._chromium import PrinterMissing, print_pdf
from vademecum.sheet._document import Form, Letter, Paper, sheet

__all__ = ["Form", "Letter", "Paper", "PrinterMissing", "print_pdf", "sheet"]
