"""How fast the recurrence is beside its peers. ``urnn bench cpu``, ``gpu`` and ``report`` are the way in."""
