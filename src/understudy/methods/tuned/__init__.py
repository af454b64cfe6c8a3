"""What the methods whose Release is a tuned model share: what learns, what the Release holds of it, texts from it."""
