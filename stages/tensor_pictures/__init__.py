"""Pictures of errors: what they show (errors, canvas, error_counts) and how it is drawn (panels, tensor, summary)."""
