"""Pictures of this room: colourings, orbits, smoothing, critical points."""
