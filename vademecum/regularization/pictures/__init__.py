"""Pictures of this room: signals by depth, decay and stopping, dropout, normalisation."""
