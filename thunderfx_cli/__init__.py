"""The thunderfx command line."""
