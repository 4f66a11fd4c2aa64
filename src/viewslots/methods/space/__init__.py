"""SPACE (Lin et al., ICLR 2020): a grid of cells finds objects in single pictures, and what is left is background."""
