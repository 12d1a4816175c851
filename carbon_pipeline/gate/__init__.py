"""May this engine and this person write there? The answer is kept with the operation."""
