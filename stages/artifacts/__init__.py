"""The files of a run: ``files`` names each, ``kinds`` reads them, and the other modules hold what is in them."""
