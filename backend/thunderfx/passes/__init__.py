"""Passes: trace in, trace out. Import the one you want; ``pipeline.py`` is the list of stages."""
