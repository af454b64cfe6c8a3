"""The guide: what a label's texts mean, as one noisy sum of embeddings per label, and its uses."""
