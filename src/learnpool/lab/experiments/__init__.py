"""Experiments: each plans runs, and turns finished runs into its table or figure."""
