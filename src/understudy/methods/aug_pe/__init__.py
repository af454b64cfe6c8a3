"""Aug-PE: private evolution of a population of texts (Xie et al. 2024)."""
