"""What the course claims of descent methods."""
