"""How small an error a comparison calls a defect, measured by planting errors in eager."""
