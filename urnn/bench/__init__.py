"""How fast the recurrence is beside its peers: all in one run, interleaved. ``urnn bench cpu`` is the way in."""
