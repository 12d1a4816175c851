"""Names, views, values and limits of queries."""
