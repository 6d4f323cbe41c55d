"""The command line: thin over the library, one module for each command.

``app`` is what the ``voicelab`` script runs. Every error that voicelab raises on purpose becomes one
line on stderr, which names the field, and exit status 2; a traceback means a defect of voicelab.
"""

from __future__ import annotations

import typer

from voicelab.cli.check import check
from voicelab.cli.console import HouseGroup, show_version
from voicelab.cli.doctor import doctor
from voicelab.cli.lab import lab
from voicelab.cli.say import say
from voicelab.cli.serve import keys, listen, serve
from voicelab.cli.stored import voices, weights
from voicelab.cli.study import compare, knobs, measure, replay, sweep

__all__ = ["app"]

app = typer.Typer(
    name="voicelab",
    help="A laboratory for synthetic voices, with a small neural voice of its own inside.",
    cls=HouseGroup,
    no_args_is_help=True,
    add_completion=False,
    # Plain help: in tables of 80 columns the longer names of fields would be cut off.
    rich_markup_mode=None,
    # A traceback with local variables could show a key.
    pretty_exceptions_enable=False,
    # Fields have the interface's names, with underscores; both spellings are taken.
    context_settings={
        "token_normalize_func": lambda token: token.replace("_", "-"),
        "help_option_names": ["-h", "--help"],
    },
)
app.callback()(show_version)
app.command()(say)
app.command()(serve)
app.command()(listen)
app.add_typer(keys, name="keys")
app.add_typer(voices, name="voices")
app.add_typer(weights, name="weights")
app.command()(sweep)
app.command()(replay)
app.command()(measure)
app.command()(compare)
app.command("knobs")(knobs)
app.command()(lab)
app.command()(check)
app.command()(doctor)
