"""What one batch of private records adds to an integer sum: the queries that several methods share."""
