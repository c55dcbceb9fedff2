"""Models that nobody here wrote, asked by every instrument: right, refused, wrong or changed."""
