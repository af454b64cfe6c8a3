"""What several methods share; no method imports another."""
