"""`ottermq audit watch`: an audit that doesn't end.

arrivals.py   what each micro-batch brought: damage, gaps, sequences that are there twice
ledger.py     what was told already and how far each log was seen; beside Spark's own checkpoint
publisher.py  to a queue of a broker, confirmed
loop.py       one watch from start to end

Whatever is found goes to the ledger first, and from there to the terminal and the queue: a broker
that is away holds nothing up, and what it missed waits on disk.
"""
