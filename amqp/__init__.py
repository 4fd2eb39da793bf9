"""The AMQP 0.9.1 server: the requests of RabbitMQ's clients, and their answers.

C reads and writes the sockets and does all work per message; all else comes here as an event, one
at a time per connection, and leaves as frames.

    server.py      the engine's events to the rules, and their answers back
    context.py     what the rules act on: engine, topology, auth, queues, settings
    connection.py  the handshake and the goodbye     channel.py  channels
    exchange.py, queue.py                            basic.py, confirm.py, tx.py
    publish.py     where a message goes when C doesn't know
    deferred_replies.py  answers that wait for the disk
    replies.py     codes and texts of refusals
    frames.py      methods to bytes and back         tables.py   field tables

What AMQP shares with the management API, such as the declaration of a queue, is done by
ottermq/operations/.

A rule is a function of the channel (or connection) and the method: it acts and returns the frames
of its answer, or raises what becomes a close. docs/amqp.md has the tables.
"""
