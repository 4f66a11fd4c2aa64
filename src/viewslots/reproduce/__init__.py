"""A whole table of the paper by one command: data, trainings, scores, figures, report."""
