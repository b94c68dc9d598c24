"""The report: one page, complete in itself, of all runs, figures of the paper and benchmarks it is given.

``gather`` reads files into plain data, ``curves`` and ``charts`` draw them with plotly, ``tables`` lays out what is to
be read, and ``page`` puts it all into the templates.
"""
