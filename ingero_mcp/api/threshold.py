"""`GET /api/v1/threshold?cluster_id=`: the threshold of a cluster, for Ingero agents whose pushes bring none back."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ingero_mcp.api.exchange import failure
from ingero_mcp.thresholds import Thresholds

PATH: Final = "/api/v1/threshold"


def threshold_route(thresholds: Thresholds) -> Route:
    """The route: {"threshold": float, "quorum_met": bool}, 0 and false where there is no quorum.

    `cgroup_path_hash` asks for one cohort of the cluster; without it, see `Thresholds.of`.
    """

    async def threshold(request: Request) -> Response:
        cluster_id = request.query_params.get("cluster_id")
        if not cluster_id:
            return failure(400, "bad_request", f"cluster_id is missing; ask GET {PATH}?cluster_id=prod")
        found = thresholds.of(cluster_id, request.query_params.get("cgroup_path_hash"))
        return JSONResponse({"threshold": found.value, "quorum_met": found.quorum_met})

    return Route(PATH, threshold, methods=["GET"])
