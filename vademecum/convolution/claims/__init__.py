"""What the course claims of convolutions and of the networks made of them."""
