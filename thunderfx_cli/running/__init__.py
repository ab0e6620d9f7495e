"""Running the user's model or script and measuring it. Everything here imports torch."""
