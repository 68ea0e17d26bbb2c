"""How fast the pools are: alone (``pools``) and in a network (``net``)."""
