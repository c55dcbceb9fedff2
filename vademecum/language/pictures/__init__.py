"""Pictures of this room: word vectors, next tokens, a model that learns."""
