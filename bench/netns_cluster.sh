#!/bin/bash
# Emulates a scenario's nodes on one machine: a network namespace for each, on cores of its own, joined by veth pairs whose two ends are
# limited to the rate of cluster.network.inter_node (tc tbf). Then `windtunnel compare` runs across them, on every node the same command:
# collectives are calibrated over those links, the step is predicted, and only then run live. Ends with a table of all scenarios.
#
#   bench/netns_cluster.sh [-w WINDTUNNEL] [-o DIRECTORY] SCENARIO.yaml… [-- OPTIONS OF COMPARE…]
#
# DIRECTORY gets NAME.json of each. Exit status: that of the worst compare (3: an error outside its tolerance);
# 77 where namespaces or rates cannot be had, with the reason.
set -u
windtunnel= results= scenarios=()
while [ $# -gt 0 ]; do
  case $1 in
    -w) windtunnel=$2; shift 2 ;;
    -o) results=$2; shift 2 ;;
    --) shift; break ;;
    -*) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) scenarios+=("$1"); shift ;;
  esac
done
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
windtunnel=$(realpath "${windtunnel:-$root/bazel-bin/windtunnel}")
[ ${#scenarios[@]} -gt 0 ] || { echo "netns_cluster: no scenario given" >&2; exit 2; }

skip() {
  echo "netns_cluster: skipped: $*" >&2
  exit 77
}
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip > /dev/null && command -v tc > /dev/null || skip "ip and tc (Debian's iproute2) are not installed"

prefix=wt$$
made=()
followers=()
work=$(mktemp -d)
results=${results:-$work/results}
mkdir -p "$results"
clean() {
  for pid in "${followers[@]}"; do kill "$pid" 2> /dev/null; done
  wait 2> /dev/null
  for name in "${made[@]}"; do ip netns del "$name" 2> /dev/null; done  # and with it, its links
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

make_namespace() {
  ip netns add "$1" 2> "$work/reason" || skip "no network namespace can be made here: $(tr '\n' ' ' < "$work/reason")"
  made+=("$1")
  ip -n "$1" link set lo up || skip "the loopback of a network namespace does not come up"
  # A connection that was idle while ranks computed continues at its rate, as clusters are set up.
  ip netns exec "$1" sysctl -qw net.ipv4.tcp_slow_start_after_idle=0 2> /dev/null
}

# shape NAMESPACE INTERFACE: the token bucket holds what passes in 0.7 ms, so that hardly anything exceeds the
# rate after a pause, and TCP hands down no larger packets than that. The queue behind it loses nothing.
shape() {
  local burst=$((mbits * 88))
  [ $burst -ge 10000 ] || burst=10000
  ip -n "$1" link set dev "$2" gso_max_size $((burst > 67536 ? 65536 : burst - 2000)) 2> /dev/null
  tc -n "$1" qdisc add dev "$2" root tbf rate "${mbits}mbit" burst $burst limit 8mb 2> "$work/reason" ||
    skip "no rate can be set here (tc tbf): $(tr '\n' ' ' < "$work/reason")"
}

# Two nodes are joined directly, more nodes through a bridge in a namespace of its own. Node k has the address
# 10.77.0.(k + 1).
make_cluster() {
  local node
  for ((node = 0; node < nodes; ++node)); do make_namespace "${prefix}n$node"; done
  if [ "$nodes" = 2 ]; then
    ip link add veth0 netns "${prefix}n0" type veth peer name veth0 netns "${prefix}n1" || skip "no veth pair can be made"
  else
    make_namespace "${prefix}s"
    ip -n "${prefix}s" link add bridge0 type bridge || skip "no bridge can be made"
    ip -n "${prefix}s" link set bridge0 up
    for ((node = 0; node < nodes; ++node)); do
      ip link add veth0 netns "${prefix}n$node" type veth peer name "port$node" netns "${prefix}s" || skip "no veth pair can be made"
      ip -n "${prefix}s" link set "port$node" master bridge0 up
      shape "${prefix}s" "port$node"
    done
  fi
  for ((node = 0; node < nodes; ++node)); do
    ip -n "${prefix}n$node" address add "10.77.0.$((node + 1))/24" dev veth0
    ip -n "${prefix}n$node" link set veth0 up
    shape "${prefix}n$node" veth0
  done
}

remove_cluster() {
  local name
  for name in "${made[@]}"; do ip netns del "$name" 2> /dev/null; done
  made=()
}

# The cores that this process may use, one a line.
usable_cores() {
  python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")'
}

# cores_of NODE: the node's share of the cores, as taskset takes it.
cores_of() {
  local each=$((${#cores[@]} / nodes))
  local mine=("${cores[@]:$(($1 * each)):each}")
  (IFS=,; echo "${mine[*]}")
}

# on NODE COMMAND…
on() {
  local node=$1
  shift
  taskset -c "$(cores_of "$node")" ip netns exec "${prefix}n$node" "$@"
}

mapfile -t cores < <(usable_cores)
token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
worst=0
for scenario in "${scenarios[@]}"; do
  name=$(basename "$scenario" .yaml)
  read -r nodes mbits < <("$windtunnel" explain --resolved "$scenario" | python3 -c '
import sys, yaml
cluster = yaml.safe_load(sys.stdin)["cluster"]
link = cluster.get("network", {}).get("inter_node") or {}
gbits = link.get("gbits_per_nic", 0) if isinstance(link, dict) else 0
print(cluster.get("nodes", 1), round(1000 * gbits))')
  if [ "${nodes:-1}" -lt 2 ] || [ "${mbits:-0}" -lt 1 ]; then
    echo "netns_cluster: $scenario: expected cluster.nodes of 2 at least and cluster.network.inter_node.gbits_per_nic" >&2
    exit 2
  fi
  [ "${#cores[@]}" -ge "$nodes" ] || skip "$name has $nodes nodes and this process ${#cores[@]} cores: each node needs one"
  make_cluster
  command=("$windtunnel" compare "$scenario" --master-addr 10.77.0.1 --rdzv-id "$token" --no-progress)
  for ((node = 1; node < nodes; ++node)); do
    on "$node" "${command[@]}" --node-rank "$node" "$@" > "$work/node$node.log" 2>&1 &
    followers+=($!)
  done
  on 0 "${command[@]}" --node-rank 0 --json "$results/$name.json" "$@"
  status=$?
  for pid in "${followers[@]}"; do wait "$pid" 2> /dev/null; done
  followers=()
  if [ "$status" != 0 ] && [ "$status" != 3 ]; then cat "$work"/node*.log >&2; fi
  [ "$status" -gt "$worst" ] && worst=$status
  remove_cluster
done

python3 - "$results" "${scenarios[@]}" << 'TABLE'
import json, os, statistics, sys
rows = []
for path in sys.argv[2:]:
    name = os.path.basename(path).removesuffix(".yaml")
    try:
        with open(f"{sys.argv[1]}/{name}.json") as file:
            result = json.load(file)
    except OSError:
        continue
    result = result[0] if isinstance(result, list) else result
    predicted, measured = result["predicted"]["step_time_s"]["p50"], result["measured"]["step_time_s"]["p50"]
    rows.append((name, predicted, measured, result["error"]["step_time"], result["measured"]["communication_s"] / measured,
                 result["measured"]["exposed_communication_s"] / measured))
print(f"\n{'emulated nodes':<28}{'predicted':>12}{'measured':>12}{'error':>9}{'communication':>15}{'exposed':>9}")
for name, predicted, measured, error, share, exposed in rows:
    print(f"{name:<28}{predicted * 1e3:>9.1f} ms{measured * 1e3:>9.1f} ms{error:>+9.1%}{share:>15.0%}{exposed:>9.0%}")
if rows:
    print(f"median |error| {statistics.median(abs(row[3]) for row in rows):.1%}; communication over half of the step in "
          f"{sum(row[4] > 0.5 for row in rows)} of {len(rows)}")
TABLE
exit $worst
