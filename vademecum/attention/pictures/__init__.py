"""Pictures of this room: attention maps, position encodings."""
