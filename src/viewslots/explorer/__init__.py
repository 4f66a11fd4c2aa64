"""A local web page to look at scenes and play with them."""
