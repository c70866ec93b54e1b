#!/bin/sh
# Process orders with ten processes of any program, without Python; a record that fails twice goes to the dead-letter topic.
# Run it against `tidemill serve`: sh examples/parallel_exec.sh
set -eu
topic=example-parallel-exec
seq 40 | tidemill produce "$topic"
# The order is the command's standard input; topic, partition, offset and key are in its environment.
tidemill consume "$topic" --group "$topic" --parallel 10 --attempts 2 --dead-letter "$topic.dlq" --max 40 \
  --exec 'order=$(cat); test "$order" != 13 && echo "order $order was at offset $TIDEMILL_OFFSET"'
tidemill consume "$topic.dlq" --from-beginning --format 'dead letter: order %v\n'
