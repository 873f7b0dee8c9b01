"""The report stage: one self-contained HTML file and JSON.

``collect`` gives what a report says as data, ``render`` makes it HTML.
"""
