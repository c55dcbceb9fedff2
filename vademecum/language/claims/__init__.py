"""What the course claims of word vectors and language models."""
