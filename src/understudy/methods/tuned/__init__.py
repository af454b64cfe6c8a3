"""What methods share whose Release is a tuned model: what learns, what the Release holds of it, and its texts."""
