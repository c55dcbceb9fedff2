"""What the course claims of attention and transformers."""
