"""The files of a run: ``files`` names each with what it holds, ``kinds`` reads them, ``records`` are their contents."""
