"""What the course claims of initialisation, normalisation and regularisation."""
