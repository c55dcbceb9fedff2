"""What the course claims of groups, sets and graphs."""
