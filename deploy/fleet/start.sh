#!/usr/bin/env bash
# Starts a fleet of three nodes and HAProxy on this machine, and stays in front of them until it is
# interrupted. An example to look at and to break: on one machine a fleet is no safer than one gateway.
#
#   TOLLGATE_PG_URL=postgres://tollgate@127.0.0.1:5432/tollgate TOLLGATE_PG_PASSWORD=... \
#   TOLLGATE_ADMIN_TOKEN=... OPENAI_API_KEY=... deploy/fleet/start.sh
#
# From the environment, too:
#   TOLLGATE_PG_PASSWORD   the password of the database's user, where it has one
#   TOLLGATE_UPSTREAM_URL  another upstream that speaks OpenAI's protocol
#   TOLLGATE               the program; `tollgate` by default
#   FLEET_DATA             where the nodes keep their data, logs and process ids; ./fleet-data by default
#   FLEET_LISTEN           HAProxy's address; 127.0.0.1:8080 by default
#   FLEET_NODE_1, _2, _3   the nodes' addresses; 127.0.0.1:8081 and so on by default
#   FLEET_ADMIN_1, _2, _3  the ports of their admin APIs; 9091 and so on by default
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
: "${TOLLGATE_PG_URL:?the database, as postgres://user@host:port/name}"
: "${TOLLGATE_ADMIN_TOKEN:?the token of the admin API}"
: "${OPENAI_API_KEY:?the key of the upstream}"
tollgate="${TOLLGATE:-tollgate}"
data="${FLEET_DATA:-fleet-data}"
files=(--routes "$here/routes.yaml" --models "$here/models.yaml")
export FLEET_LISTEN="${FLEET_LISTEN:-127.0.0.1:8080}"
for n in 1 2 3; do
    listen="FLEET_NODE_$n" admin="FLEET_ADMIN_$n"
    export "$listen=${!listen:-127.0.0.1:808$n}" "$admin=${!admin:-909$n}"
done
# Debian keeps servers where only root's PATH leads.
PATH="$PATH:/usr/sbin"
mkdir -p "$data"

pids=()
haproxy=""
# stop PID…: has processes end, and looks until they have. Bash can wait for ever for a child that ended
# while a trap began.
stop() {
    for pid in "$@"; do kill -TERM "$pid" 2>/dev/null || true; done
    for pid in "$@"; do
        while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
    done
}
end() {
    trap - EXIT INT TERM
    # The nodes first, which let calls end and give back what they have out; HAProxy last.
    stop "${pids[@]}"
    stop ${haproxy:+"$haproxy"}
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The schema must be there before the first node. The name is not used.
"$tollgate" migrate up "${files[@]}"

for n in 1 2 3; do
    listen="FLEET_NODE_$n" admin="FLEET_ADMIN_$n"
    TOLLGATE_NODE="node-$n" "$tollgate" serve "${files[@]}" --data "$data/node-$n" \
        --listen "${!listen}" --admin "127.0.0.1:${!admin}" >>"$data/node-$n.log" 2>&1 &
    pids+=($!)
    echo $! >"$data/node-$n.pid"
done
for n in 1 2 3; do
    admin="FLEET_ADMIN_$n"
    until "$tollgate" healthcheck --admin "127.0.0.1:${!admin}" >/dev/null 2>&1; do
        if ! kill -0 "${pids[$((n - 1))]}" 2>/dev/null; then
            cat "$data/node-$n.log" >&2
            exit 1
        fi
        sleep 0.1
    done
done

haproxy -db -f "$here/haproxy.cfg" >>"$data/haproxy.log" 2>&1 &
haproxy=$!
echo "$haproxy" >"$data/haproxy.pid"
echo "Customers: http://$FLEET_LISTEN    Admin API of node-1: http://127.0.0.1:$FLEET_ADMIN_1"
echo "Stop a node with: kill \$(cat $data/node-1.pid)"
wait "$haproxy"
