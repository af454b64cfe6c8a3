"""What the synthetic texts are good for: train on them, test on real ones."""
