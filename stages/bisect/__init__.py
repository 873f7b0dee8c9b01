"""The bisect stage: which part of the compiler makes a fault go away. Importing this package does not import torch.

::

    from inductor_debug import bisect
    print(bisect(module, (x,), backend="inductor").answer)
"""
