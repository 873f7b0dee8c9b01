"""Whether a result is worse than an earlier one beyond noise: ``inductor-debug compare A B``.

A is the accepted result, B the new one, each a run or a sweep. What A established and B did not is never passed.
"""
