"""The constrain stage: a captured graph against an accelerator's rules.

::

    from inductor_debug import check, load_profile
    check(graphs, load_profile("warn16", alignment=64)).table
"""
