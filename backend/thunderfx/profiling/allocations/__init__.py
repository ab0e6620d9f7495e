"""What held memory: allocations of one step by line, the peak explained, tensors saved for backward.

Only ``model`` is needed to read a stored run; it imports no torch.
"""
