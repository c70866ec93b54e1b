"""A check of PostgreSQL: which server answers, and which schema it has; nothing is changed."""

import pytest
from tests.support.postgres import Postgres

from tidemill.timelines.core.errors import StoreUnavailable
from tidemill.timelines.postgres import open_store
from tidemill.timelines.postgres.probe import visit
from tidemill.timelines.postgres.schema import VERSION


async def test_a_visitor_sees_the_tables_and_makes_none(postgres: Postgres) -> None:
    url = postgres.new_database()
    before = await visit(url)
    assert (before.schema, before.newest) == (0, VERSION)
    assert before.server[0].isdigit()
    assert await visit(url) == before
    store = await open_store(url)
    await store.close()
    assert (await visit(url)).schema == VERSION


@pytest.mark.parametrize("where", ["missing@127.0.0.1:1/tests", "tidemill@127.0.0.1:{port}/nothing"])
async def test_a_server_that_does_not_answer_is_reported(postgres: Postgres, where: str) -> None:
    with pytest.raises(StoreUnavailable, match="PostgreSQL: "):
        await visit(f"postgresql://{where.format(port=postgres.port)}")
