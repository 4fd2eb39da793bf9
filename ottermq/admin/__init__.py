"""The admin port: HTTP for operators and their tools.

port.py       the listeners; loads the rest once all ports are open
services.py   what serves which port
http.py       connections, requests, answers, by h11
messages.py   a request, an answer, what is wrong with a request
guard.py      names of ours, logins, pages of other origins
waiting.py    silent connections give way
pages.py      /health, /metrics, and what our own command asks (paths.py)
metrics.py    the counters
context.py    the broker that is shown
api/          RabbitMQ's management API
"""
