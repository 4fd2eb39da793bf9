"""`python -m ottermq` is the `ottermq` command."""

from ottermq.cli.main import main

main()
