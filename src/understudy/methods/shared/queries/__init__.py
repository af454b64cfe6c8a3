"""The contribution of one batch of private records to an integer sum: the queries that several methods share."""
