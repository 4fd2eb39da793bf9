"""RabbitMQ's management API, below /api.

A request is matched to a route (router.py), its user to the route's rule, its vhost to the
user's; then a handler, a function of the `Call`, gives the answer's value. Each module has the
routes of one kind of object:

overview.py      the broker as a whole          nodes.py         this node
vhosts.py        vhosts                         users.py         users
permissions.py   permissions, topics            limits.py        of vhosts and users
queues.py        queues                         exchanges.py     exchanges
bindings.py      bindings                       consumers.py     consumers
connections.py   connections, AMQP and Kafka    channels.py      AMQP channels
policies.py      policies, operator policies    parameters.py    parameters, global parameters
definitions.py   all of it, out and in          health.py        health checks
messages.py      publish and get                internal_client.py  the client that does it

call.py          a request and its body         listing.py       pages, filters, columns
errors.py        refusals as statuses           answers.py       from a route to bytes
"""

from ottermq.admin.api.answers import respond_with

__all__ = ["respond_with"]
