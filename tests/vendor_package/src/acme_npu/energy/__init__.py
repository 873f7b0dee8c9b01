"""The stage ``acme_energy``: what a step would cost the chip in energy."""
