"""What the terminal prints, from values alone."""
