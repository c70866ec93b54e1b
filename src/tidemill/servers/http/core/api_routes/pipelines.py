"""The routes of pipelines. The rights on the topics that a pipeline reads and writes protect it."""

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core.route_access import PAGE, TOPIC, LoginNeed, RouteAccess, RouteShapes, optional
from tidemill.wire.http.pipelines import (
    PipelineDescription,
    PipelineDescriptionQuery,
    PipelinePage,
    PipelineQuery,
)

_LISTED = optional(Operation.DESCRIBE, TOPIC, "of all topics of a pipeline, or on the cluster; leaves out the others")
_SHOWN = optional(Operation.DESCRIBE, TOPIC, "of all topics of the pipeline, or on the cluster")
_FORGOTTEN = (
    _SHOWN,
    optional(Operation.READ, TOPIC, "of the topics that it reads, or ALTER on the cluster"),
    optional(Operation.WRITE, TOPIC, "of the topics that it writes, or ALTER on the cluster"),
)

ROUTES: tuple[RouteAccess, ...] = (
    RouteAccess(
        "GET",
        "/pipelines",
        LoginNeed.LOGIN,
        (_LISTED,),
        shapes=RouteShapes("Show the pipelines.", query=PipelineQuery, media_type=PAGE),
    ),
    RouteAccess(
        "GET",
        "/pipelines/{name}",
        LoginNeed.LOGIN,
        (_SHOWN,),
        shapes=RouteShapes("Show one pipeline.", query=PipelineDescriptionQuery, media_type=PAGE),
    ),
    RouteAccess(
        "GET",
        "/api/v1/pipelines",
        LoginNeed.LOGIN,
        (_LISTED,),
        shapes=RouteShapes("List pipelines with their state, rows and lag.", PipelinePage, PipelineQuery),
    ),
    RouteAccess(
        "GET",
        "/api/v1/pipelines/{name}",
        LoginNeed.LOGIN,
        (_SHOWN,),
        shapes=RouteShapes(
            "Show one pipeline: queries, datasets and samples.", PipelineDescription, PipelineDescriptionQuery
        ),
    ),
    RouteAccess(
        "DELETE",
        "/api/v1/pipelines/{name}",
        LoginNeed.LOGIN,
        _FORGOTTEN,
        shapes=RouteShapes("Forget a pipeline that has ended."),
        changes=True,
    ),
)
