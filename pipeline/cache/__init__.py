"""Results of stages, kept by what they depend on and given to later runs that depend on the same.

A stage's key covers what it is given: its options, the settings that it declares to read, and the keys of the stages
that it follows. It is given nothing else (:class:`pipeline.run.processes.reuse.Reuse` narrows its context), so that a
declaration that lacks something shows at once. The rest is the surroundings: this package's source, versions,
variables, the machine, the files that the configuration names, and, told once the stage has run, the files, packages
and variables that the user's code took.
"""
