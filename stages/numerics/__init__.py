"""Comparison of tensors: formats, readers, figures, metrics and the verdict. Needs no case and no stage."""
