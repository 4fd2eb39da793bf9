"""`ottermq audit watch`: an audit that doesn't end.

arrivals.py   checks of each micro-batch: damage, gaps, sequences that are there twice
ledger.py     reported findings and how far each log was seen; next to Spark's own checkpoint
publisher.py  to a queue of a broker, confirmed
loop.py       one watch from start to end

A finding goes to the ledger first, and from there to the terminal and the queue: a broker
that is away holds nothing up, and the findings it missed wait on disk.
"""
