"""Pictures of errors: what they show (errors, canvas, tally) and how it is drawn (panels, tensor, summary)."""
