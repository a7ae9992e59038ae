"""The three signals of OpenTelemetry."""

from typing import Literal

Signal = Literal["traces", "metrics", "logs"]
