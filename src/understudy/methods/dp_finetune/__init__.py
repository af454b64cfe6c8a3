"""DP-SGD fine-tuning: a local model is tuned on the private texts and writes synthetic ones (Yue et al. 2023)."""
