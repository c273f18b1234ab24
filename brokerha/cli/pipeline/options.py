"""Options that the commands of ``brokerha pipeline`` share, so that they mean the same in each.

Whatever has a help text of its own in a command, as ``--dry-run`` has, stays with that command.
"""

from __future__ import annotations

from typing import Annotated

import typer

from brokerha.model.errors import InvalidRequest


def place_of(text: str) -> str:
    """A folder or URL, as `brokerha.pipeline.places.place` makes it. Raises typer.BadParameter for one that nobody serves."""
    from brokerha.pipeline.places import place

    try:
        return place(text)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from None


ArchiveOption = Annotated[
    str, typer.Option("--archive", metavar="PLACE", help="The archive, a folder or a URL.", parser=place_of)
]
MasterOption = Annotated[
    str,
    typer.Option(
        "--spark-master", envvar="BROKERHA_SPARK_MASTER", metavar="URL",
        help="Where Spark runs: local[N,TRIES], spark://HOST:PORT, yarn, k8s://…, sc://HOST:PORT.",
    ),
]  # fmt: skip
MemoryOption = Annotated[
    str, typer.Option("--spark-memory", metavar="SIZE", help="Memory of Spark's driver, such as 2g.")
]
ConfOption = Annotated[
    list[str], typer.Option("--spark-conf", metavar="KEY=VALUE", help="A setting of Spark; can be repeated.")
]

DEFAULT_MASTER = ""
"""That of spark-submit or SPARK_REMOTE, else all cores of this machine (brokerha.spark.session)."""
DEFAULT_MEMORY = "2g"
