"""Classic groups through the Kafka server, in every version."""

from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.kafka_server import request_part
from tests.unit.servers.kafka.admin_client import VERSIONS, connected
from tests.unit.servers.kafka.groups_client import (
    BEAT,
    DELETE,
    DESCRIBE,
    JOIN,
    LEAVE,
    LIST,
    SUBSCRIPTION,
    SYNC,
    join,
    member,
)

from tidemill.model.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    NonEmptyGroup,
    UnknownMemberId,
)

pytestmark = pytest.mark.event_loop("uvloop")


@pytest.mark.parametrize("version", VERSIONS[JOIN])
async def test_a_life_in_a_classic_group(tmp_path: Path, version: int) -> None:
    async with connected(tmp_path) as (client, _server):
        reported = await join(client, version, "g")
        if version >= 4:
            assert reported.error_code == MemberIdRequired.code
            assert (reported.generation_id, reported.leader, reported.members) == (-1, "", ())
            reported = await join(client, version, "g", reported.member_id)
        assert (reported.error_code, reported.generation_id, reported.protocol_name) == (0, 1, "range")
        assert reported.leader == reported.member_id
        assert [(each.member_id, each.metadata) for each in reported.members] == [(reported.member_id, SUBSCRIPTION)]
        for sync in VERSIONS[SYNC]:
            blob = request_part(
                SYNC, sync, "SyncGroupRequestAssignment", member_id=reported.member_id, assignment=b"\0\0mine"
            )
            named = {"protocol_type": "consumer", "protocol_name": "range"} if sync >= 5 else {}
            synced = await client.ask(
                SYNC, sync, group_id="g", generation_id=1, member_id=reported.member_id, assignments=(blob,), **named
            )
            assert (synced.error_code, synced.assignment) == (0, b"\0\0mine")
        for beat in VERSIONS[BEAT]:
            alive = await client.ask(BEAT, beat, group_id="g", generation_id=1, member_id=reported.member_id)
            assert alive.error_code == 0
            stale = await client.ask(BEAT, beat, group_id="g", generation_id=7, member_id=reported.member_id)
            assert stale.error_code == IllegalGeneration.code


@pytest.mark.parametrize("version", VERSIONS[JOIN])
async def test_refused_joins(tmp_path: Path, version: int) -> None:
    async with connected(tmp_path) as (client, _server):
        for more, error in (
            ({"group": ""}, InvalidGroupId),
            ({"session_timeout": timedelta(milliseconds=5_999)}, InvalidSessionTimeout),
            ({"member_id": "stranger"}, UnknownMemberId),
        ):
            reported = await join(client, version, **{"group": "g", **more})  # type: ignore[arg-type]  # as listed
            assert reported.error_code == error.code
            assert reported.generation_id == -1
            assert reported.member_id == more.get("member_id", "")
            assert reported.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", VERSIONS[LEAVE])
async def test_leaving(tmp_path: Path, version: int) -> None:
    async with connected(tmp_path) as (client, _):
        mine = await member(client, "g")
        if version < 3:
            reported = await client.ask(LEAVE, version, group_id="g", member_id="stranger")
            assert reported.error_code == UnknownMemberId.code
            reported = await client.ask(LEAVE, version, group_id="g", member_id=mine)
            assert reported.error_code == 0
            return
        members = tuple(
            request_part(LEAVE, version, "MemberIdentity", member_id=each, group_instance_id=None)
            for each in ("stranger", mine)
        )
        reported = await client.ask(LEAVE, version, group_id="g", members=members)
        assert reported.error_code == 0
        assert [(each.member_id, each.error_code) for each in reported.members] == [
            ("stranger", UnknownMemberId.code),
            (mine, 0),
        ]


async def test_descriptions_and_lists(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, _server):
        mine = await member(client, "g")
        for version in VERSIONS[DESCRIBE]:
            reported = await client.ask(
                DESCRIBE, version, groups=("g", "unknown"), include_authorized_operations=version % 2 == 0
            )
            group, absent = reported.groups
            assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (
                0, "Stable", "consumer", "range",
            )  # fmt: skip
            assert [(each.member_id, each.client_id, each.client_host) for each in group.members] == [
                (mine, "test", "/127.0.0.1")
            ]
            assert group.members[0].member_assignment == b"all"
            assert absent.group_state == "Dead"
            assert absent.error_code == (GroupIdNotFound.code if version >= 6 else 0)
        for version in VERSIONS[LIST]:
            reported = await client.ask(LIST, version)
            (listed,) = reported.groups
            assert (listed.group_id, listed.protocol_type) == ("g", "consumer")
            if version >= 4:
                assert listed.group_state == "Stable"
                assert not (await client.ask(LIST, version, states_filter=("Empty",))).groups
            if version >= 5:
                assert listed.group_type == "classic"
                assert (await client.ask(LIST, version, types_filter=("Classic",))).groups
                assert not (await client.ask(LIST, version, types_filter=("consumer",))).groups
        for version in VERSIONS[DELETE]:
            reported = await client.ask(DELETE, version, groups_names=("g", "unknown"))
            assert [each.error_code for each in reported.results] == [NonEmptyGroup.code, GroupIdNotFound.code]


async def test_leave_group_of_an_unknown_group_returns_an_error_for_each_member(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, _):
        leaver = request_part(13, 5, "MemberIdentity", member_id="ada", group_instance_id=None, reason=None)
        reported = await client.ask(13, 5, group_id="unknown", members=(leaver,))
        assert (reported.error_code, [each.error_code for each in reported.members]) == (0, [25])
