"""The guide: what a label's texts mean, as one noisy sum per label."""
