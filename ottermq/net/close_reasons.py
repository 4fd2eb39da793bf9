"""Why a connection ended or was not let in: the `reason` of its line in the log.

The engine has more of them, for errors it finds itself (`om_conn_break` in csrc/);
docs/log-events.md lists all.
"""

BY_BROKER = "closed by the broker"  # the engine's, for whatever Python closes
BY_CLIENT = "closed by the client"
CLIENT_LEFT = "client unexpectedly closed TCP connection"  # as RabbitMQ says it
LOST = "connection lost"
STOPPED = "broker stopped"
OUT_OF_MEMORY = "out of memory"
USER_CHANGED = "user changed or deleted"
INTERNAL_ERROR = "internal error"
BY_OPERATOR = "closed by an operator"

# Not let in.
TOO_MANY = "too many connections"
WRONG_PROTOCOL = "wrong protocol"
TLS_FAILED = "TLS handshake failed"
TLS_TIMEOUT = "TLS handshake timeout"

# Kafka's protocol has no word for most of what is wrong: the broker closes the connection.
NOT_LOGGED_IN = "authentication required"
LOGIN_FAILED = "authentication failed"
NOT_ALLOWED = "access refused"
MALFORMED = "malformed request"
UNKNOWN_API = "unsupported API"
UNKNOWN_VERSION = "unsupported API version"
REQUEST_FAILED = "request failed"

# The admin port.
ANSWERED = "request answered"
NO_REQUEST = "no request sent"
IDLE_LONGEST = "idle for longest while too many waited"

# Of a connection that never said hello: it left by itself, or another line says why.
UNREMARKABLE = frozenset({BY_CLIENT, CLIENT_LEFT, LOST, BY_BROKER, STOPPED})
