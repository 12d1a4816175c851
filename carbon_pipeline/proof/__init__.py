"""What is held and how it came there, as one document that a stranger can check."""
