#!/usr/bin/env bash
# The cost of the watchers in a call: the same benchmark with watchers and without, alternately, so that drift of the
# machine affects both.
#
#   benches/watcher-cost.sh [ROUNDS [RANKS...]]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-20}
shift $(($# > 0 ? 1 : 0))
cargo build --locked --release --quiet --package intranode-cli
program=${CARGO_TARGET_DIR:-target}/release/intranode
results=$(mktemp)
trap 'rm -f "$results"' EXIT

for ranks in "${@:-2 4}"; do
    # shellcheck disable=SC2086
    for n in $ranks; do
        for _ in $(seq "$rounds"); do
            for liveness in watch none; do
                INTRANODE_LIVENESS=$liveness "$program" bench -n "$n" --json --seconds 0.2 \
                    --op barrier --op allreduce --bytes 32 --bytes 8192 | sed "s/^{/{\"liveness\":\"$liveness\",/" >>"$results"
            done
        done
    done
done

# The median of the medians, and its interquartile range.
python3 - "$results" <<'PYTHON'
import collections, json, statistics, sys
rows = collections.defaultdict(list)
for line in open(sys.argv[1]):
    row = json.loads(line)
    rows[row["op"], row["bytes"], row["ranks"], row["liveness"]].append(row["median_us"])
print(f"{'op':<10} {'bytes':>6} {'ranks':>5} {'watched':>9} {'quarters':>15} {'not':>9} {'quarters':>15} {'ratio':>6}")
for op, size, ranks, _ in sorted({key for key in rows if key[3] == "watch"}, key=lambda key: (key[2], key[0], key[1])):
    shown = []
    for liveness in ("watch", "none"):
        values = rows[op, size, ranks, liveness]
        low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        shown += [middle, f"{low:.3f} – {high:.3f}"]
    print(f"{op:<10} {size:>6} {ranks:>5} {shown[0]:>9.3f} {shown[1]:>15} {shown[2]:>9.3f} {shown[3]:>15} {shown[0] / shown[2]:>6.3f}")
PYTHON
