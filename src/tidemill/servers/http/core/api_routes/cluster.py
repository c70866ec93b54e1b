"""The routes of the cluster and of its brokers."""

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core.route_access import (
    CLUSTER,
    PAGE,
    LoginNeed,
    RouteAccess,
    RouteRight,
    RouteShapes,
    optional,
)
from tidemill.wire.http.cluster import (
    AcceptedClock,
    BrokerSettingList,
    BrokerSettingsQuery,
    ClusterStatus,
    ElectionOutcome,
    MovingPartitions,
    RebalanceOutcome,
)

_DESCRIBE = RouteRight(Operation.DESCRIBE, CLUSTER)
_ALTER = RouteRight(Operation.ALTER, CLUSTER)
_ALTER_CONFIGS = RouteRight(Operation.ALTER_CONFIGS, CLUSTER)
_DESCRIBE_CONFIGS = RouteRight(Operation.DESCRIBE_CONFIGS, CLUSTER)

ROUTES: tuple[RouteAccess, ...] = (
    RouteAccess(
        "GET",
        "/cluster",
        LoginNeed.LOGIN,
        (_DESCRIBE,),
        shapes=RouteShapes("Show the brokers, and partitions that lack something.", media_type=PAGE),
    ),
    RouteAccess(
        "GET",
        "/cluster/rebalance",
        LoginNeed.LOGIN,
        (_DESCRIBE,),
        shapes=RouteShapes("Show what a rebalance changes.", media_type=PAGE),
    ),
    RouteAccess(
        "GET",
        "/cluster/brokers/{broker}",
        LoginNeed.LOGIN,
        (_DESCRIBE, optional(Operation.DESCRIBE_CONFIGS, CLUSTER, "for the settings")),
        shapes=RouteShapes("Show one broker and its settings.", query=BrokerSettingsQuery, media_type=PAGE),
    ),
    RouteAccess(
        "GET",
        "/api/v1/cluster",
        LoginNeed.LOGIN,
        (_DESCRIBE,),
        shapes=RouteShapes("Describe the brokers, and partitions that lack something.", ClusterStatus),
    ),
    RouteAccess(
        "GET",
        "/api/v1/cluster/reassignments",
        LoginNeed.LOGIN,
        (_DESCRIBE,),
        shapes=RouteShapes("List the partitions that move to other brokers, with their progress.", MovingPartitions),
    ),
    RouteAccess(
        "GET",
        "/api/v1/cluster/rebalance",
        LoginNeed.LOGIN,
        (_DESCRIBE,),
        shapes=RouteShapes("Show what a rebalance would change.", RebalanceOutcome),
    ),
    RouteAccess(
        "POST",
        "/api/v1/cluster/rebalance",
        LoginNeed.LOGIN,
        (_ALTER,),
        shapes=RouteShapes("Spread replicas and leaders evenly over the brokers.", RebalanceOutcome),
        changes=True,
    ),
    RouteAccess(
        "POST",
        "/api/v1/cluster/elections",
        LoginNeed.LOGIN,
        (_ALTER,),
        shapes=RouteShapes("Elect the first replica of each partition as its leader.", ElectionOutcome),
        changes=True,
    ),
    RouteAccess(
        "DELETE",
        "/api/v1/brokers/{broker}",
        LoginNeed.LOGIN,
        (_ALTER,),
        shapes=RouteShapes("Forget a broker that will not return."),
        changes=True,
    ),
    RouteAccess(
        "GET",
        "/api/v1/brokers/{broker}/settings",
        LoginNeed.LOGIN,
        (_DESCRIBE_CONFIGS,),
        shapes=RouteShapes(
            "List the settings of a broker with their defaults.", BrokerSettingList, BrokerSettingsQuery
        ),
    ),
    RouteAccess(
        "POST",
        "/api/v1/brokers/{broker}/clock",
        LoginNeed.LOGIN,
        (_ALTER_CONFIGS,),
        shapes=RouteShapes("Accept the wall clock of a broker, which is in doubt.", AcceptedClock),
        changes=True,
    ),
)
