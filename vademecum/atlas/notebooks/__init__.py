"""One notebook a room: its introduction, which is the docstring, and its live pictures."""
