"""MulMON (Li, Eastwood and Fisher, NeurIPS 2020): objects of a scene from several views whose cameras are known."""
