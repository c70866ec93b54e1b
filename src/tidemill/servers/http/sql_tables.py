"""`GET /api/tables/NAME`: this broker's part of a table as an Arrow stream, for the broker that runs a query."""

from starlette.requests import Request
from starlette.responses import Response

from tidemill.servers.http.api.dispatch import Endpoint
from tidemill.servers.http.logins import HttpClient
from tidemill.servers.http.responses import problem
from tidemill.servers.http.server import SqlQueries
from tidemill.sql.core.errors import SqlUnavailable


def table_endpoint(sql: SqlQueries) -> Endpoint:
    """Return the endpoint for this broker's part of a table, which other brokers of the cluster request."""

    async def table(request: Request, client: HttpClient) -> Response:
        path = request.url.path
        try:
            found = await sql.table(request.path_params["name"], client.rights)
        except SqlUnavailable as error:
            return problem(path, 503, str(error))
        if found is None:
            return problem(path, 404, "the table does not exist on this broker")
        return Response(found, media_type="application/vnd.apache.arrow.stream")

    return table
