"""Experiments: a leaf of the package. It imports everything, and only the command line imports it."""
