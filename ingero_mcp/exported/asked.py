"""What somebody wants exported: the format, and which events or which statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, Literal, cast

from ingero_mcp.errors import ConfigError

Format = Literal["perfetto", "parquet", "csv"]
FORMATS: Final[tuple[Format, ...]] = ("perfetto", "parquet", "csv")
MEDIA_TYPES: Final[Mapping[Format, str]] = {
    "perfetto": "application/json",
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv; charset=utf-8",
}
ENDINGS: Final[Mapping[Format, str]] = {"perfetto": "perfetto.json", "parquet": "parquet", "csv": "csv"}
"""Of the names of files."""
EXAMPLE: Final = "/api/v1/export?format=perfetto&window=last%2015m"


@dataclass(frozen=True, slots=True)
class Asked:
    """The events of a window, cluster and job (None: all of them), or in their stead the rows of a SELECT, `sql`.

    `spreadsheets` makes texts that a spreadsheet would take for formulas harmless, in CSV.
    """

    format: Format
    window: str | None = None
    cluster: str | None = None
    job: str | None = None
    sql: str | None = None
    spreadsheets: bool = False

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ConfigError(f"format {self.format[:40]!a} is not known; accepted are {', '.join(FORMATS)}")
        if self.sql is None:
            return
        if self.format == "perfetto":
            raise ConfigError(
                "a timeline is made of events, not of the rows of a statement; export sql as parquet or csv"
            )
        if (self.window, self.cluster, self.job) != (None, None, None):
            raise ConfigError("sql says itself which rows it wants; window, cluster and job do not go with it")

    def as_parameters(self) -> dict[str, str]:
        """As the parameters of a request."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: "true" if value is True else value for name, value in given.items() if value not in (None, False)}


def asked_of(parameters: Mapping[str, str]) -> Asked:
    """What the parameters of a request ask for; ConfigError with an example if they cannot be understood."""
    known = {one.name for one in fields(Asked)}
    if unknown := sorted(parameters.keys() - known):
        raise _refused(f"{unknown[0][:40]!a} is not known; accepted are {', '.join(sorted(known))}")
    if "format" not in parameters:
        raise _refused(f"format is missing; accepted are {', '.join(FORMATS)}")
    spreadsheets = parameters.get("spreadsheets", "false")
    if spreadsheets not in ("true", "false"):
        raise _refused("spreadsheets must be true or false")
    texts = {name: text for name, text in parameters.items() if name not in ("format", "spreadsheets")}
    return Asked(cast(Format, parameters["format"]), spreadsheets=spreadsheets == "true", **texts)


def _refused(why: str) -> ConfigError:
    return ConfigError(f"{why}; for example {EXAMPLE}")
