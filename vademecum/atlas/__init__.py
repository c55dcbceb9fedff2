"""The atlas: the course in the browser, offline and live.

Pages are made by `pages` from the claims themselves, served by `application` behind the `gate`, and
written to files by `export`. What a room adds is one notebook in `notebooks/`: its introduction and
its live pictures.
"""
