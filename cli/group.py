"""A command with commands of its own, each listed with its whole first sentence."""

import click


class Group(click.Group):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, without cutting: a text that doesn't fit a line goes on in the next."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, _first_sentence(command)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def _first_sentence(command: click.Command) -> str:
    text = command.short_help or (command.help or "").split("\n\n")[0]
    words = " ".join(text.split())
    for end in (". ", "? "):
        if end in words:
            words = words[: words.index(end) + 1]
    return words
