"""One run: its description, presets, training loop, checkpoints and directory."""
