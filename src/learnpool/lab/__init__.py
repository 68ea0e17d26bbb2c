"""Experiments with learned pools; needs the extra ``learnpool[lab]``."""
