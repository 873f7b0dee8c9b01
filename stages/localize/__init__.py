"""Where it first goes wrong: each operation against float64 of what it received. Importing this package does not
import torch."""
