"""What the course claims of recurrent networks."""
