"""Pictures of this room: gradients through time, eigenvalues on their ring, gates of a latch."""
