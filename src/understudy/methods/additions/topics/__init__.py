"""Topics: what a corpus is about, as noisy clusters of its embeddings, named by public terms."""
