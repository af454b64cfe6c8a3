"""The guide: what a label's texts mean, as one noisy sum of embeddings per label, and what it is good for."""
