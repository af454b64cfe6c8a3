"""Code that several methods share; no method imports another."""
