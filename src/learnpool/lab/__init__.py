"""Experiments with learned pools; needs the extra ``lab``."""
