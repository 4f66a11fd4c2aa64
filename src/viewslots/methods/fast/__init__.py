"""Ways to compute the same faster, for any method. Tests compare them with the plain code."""
