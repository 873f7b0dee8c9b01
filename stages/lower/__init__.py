"""The lower stage, and every backend behind one door.

::

    from inductor_debug import aot_mock_backend, mock_backend
    torch.compile(model, backend=mock_backend)
"""
