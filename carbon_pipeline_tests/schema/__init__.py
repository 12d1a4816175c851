"""Tests of what types become."""
