"""The guards stage: what torch.compile holds a case to, and what varied inputs make of it. Torch comes on first use."""
