"""understudy: differentially private synthetic stand-ins for private text corpora."""

__version__ = "0.1.0"
