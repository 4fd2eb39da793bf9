"""What clients may do to queues, exchanges and bindings, whichever protocol they ask by.

    change = queues.declare(state, caller, "orders", …)     # checked, and done in memory
    await saved(state, caller, change, act)                 # on disk, and in the audit log

caller.py     who asks, and what is acted on
queues.py     declare, delete, purge
exchanges.py  declare, delete
bindings.py   bind, unbind
acts.py       the audit line of each
"""
