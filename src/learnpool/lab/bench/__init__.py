"""How fast the pools are: alone (``pools``), as everything grows (``scaling``) and in a network (``net``)."""
