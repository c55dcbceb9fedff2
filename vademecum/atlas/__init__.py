"""The atlas: the course in the browser, offline and live.

Pages are made by `pages` from the claims and pictures themselves, served by `application` behind
the `gate`, and written to files by `export`.
"""
