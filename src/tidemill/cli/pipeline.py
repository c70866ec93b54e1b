"""`tidemill pipeline`: topics into lakes and back."""

import typer

from tidemill.cli.pipeline_lake import archive, audit, replay

app = typer.Typer(help="Run pipelines on Spark; archive topics and replay them.", no_args_is_help=True)
for command in (archive, audit, replay):
    app.command()(command)
