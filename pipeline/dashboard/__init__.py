"""``inductor-debug dashboard``: a page in the browser for what the command line does, with Streamlit.

It holds no logic of its own: what it shows comes from the functions that the command line calls, and a run that is
started here is ``inductor-debug run`` in a process of its own. Streamlit is an extra: :mod:`server`, :mod:`outputs`,
:mod:`children` and :mod:`words` do without it.
"""
