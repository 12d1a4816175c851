"""From evidence to a ruling."""
