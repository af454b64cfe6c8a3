"""The guide: one noisy sum of the private texts' embeddings per label, by which synthetic texts are chosen."""
