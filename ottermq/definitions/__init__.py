"""RabbitMQ's definitions file: users, vhosts, permissions, policies, exchanges, queues, bindings.

    definitions = parse(path.read_text())            # DefinitionsError: all that is wrong, by line
    await apply(definitions, topology, auth)         # twice is the same as once
    await load(path, topology, auth)                 # both; ConfigError: what is wrong, in one line
    text = export(topology, auth)                    # in the same form

fields.py   an object of JSON, asked for its fields
parse.py    the JSON checked and turned into plain records
apply.py    into the topology and auth; what is there already stays as it is
acts.py     its changes, for the audit log
load.py     from a path, at the start and on SIGHUP
export.py   and back
"""

from ottermq.definitions.load import load

__all__ = ["load"]
