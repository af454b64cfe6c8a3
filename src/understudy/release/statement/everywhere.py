"""What no promise covers, whatever is protected."""

POPULATION = (
    "Facts about the population that hold with or without any one unit: the synthetic texts are meant to show them."
)
SELECTION = (
    "Choosing parameters, a run or a method by looking at results on the private data, unless that was charged too."
)
ENDING = "That a run ended in an error (such as too many rows that cannot be used), and how long it took."
LANGUAGE_MODEL = "What a language model learned from its own training data."
