"""All dashboards, in the order of the list."""

from tidemill.cli.monitoring.cluster_board import CLUSTER_BOARD
from tidemill.cli.monitoring.groups_board import GROUPS_BOARD
from tidemill.cli.monitoring.parallel_board import PARALLEL_BOARD
from tidemill.cli.monitoring.pipelines_board import PIPELINES_BOARD
from tidemill.cli.monitoring.shares_board import SHARES_BOARD
from tidemill.cli.monitoring.timelines_board import TIMELINES_BOARD
from tidemill.cli.monitoring.topic_board import TOPIC_BOARD

BOARDS = (CLUSTER_BOARD, TOPIC_BOARD, GROUPS_BOARD, SHARES_BOARD, TIMELINES_BOARD, PIPELINES_BOARD, PARALLEL_BOARD)
