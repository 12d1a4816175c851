"""The tests of carbon_pipeline, in the folders of what they test."""
