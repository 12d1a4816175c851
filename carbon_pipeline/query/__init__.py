"""SQL over what is published: which name stands for which snapshot, and one engine that runs the queries."""
