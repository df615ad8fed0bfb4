#!/bin/sh
# Makes the pictures of this directory anew, from one training of a made-up case with 4 ranks: the terminal with `intranode top`
# during it, and its report. Needs tmux, chromium and what builds cobre-shm; some minutes. What it runs and its files stay in
# target/pictures.
set -eu
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --package intranode-cobre --package intranode-cli
bin=$PWD/$target/release
work=$PWD/$target/pictures
session=intranode-pictures-$$
job=/training-$$
rm -rf "$work"
mkdir -p "$work"
trap 'tmux kill-session -t "$session" 2>/dev/null || true' EXIT

"$bin/cobre-shm" case "$work/case" --iterations "${ITERATIONS:-20}" --hydros 12 --stages 24 --openings 10
"$bin/intranode" run -n 4 --name "$job" --report "$work/training.html" --trace "$work/training.trace.json" -- \
    "$bin/cobre-shm" run "$work/case" --out "$work/out" --threads 1 --quiet &
training=$!

tmux new-session -d -s "$session" -x 136 -y 12 "$bin/intranode top --interval 1 $job"
# Once ranks are in an operation after some hundred rounds, and rates have been measured: rounds a second are not 0.
until tmux capture-pane -p -t "$session" | grep -Eq '^ *\*? *[0-3] .* (allgatherv?|allreduce|barrier|broadcast) +[1-9][0-9]{2,} +[1-9]'; do
    kill -0 "$training" || { echo "the training has ended before a rank was seen" >&2; exit 1; }
    sleep 0.2
done
tmux capture-pane -e -p -t "$session" > "$work/top.ansi"
docs/pictures/terminal.py < "$work/top.ansi" > docs/pictures/top.svg
wait "$training"
docs/pictures/check_trace.py "$work/training.trace.json"

# As much of the page as one sees at first. A name without a user's directories.
sed "s|$work/|/tmp/|g; s|$bin/||g" "$work/training.html" > "$work/page.html"
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1100,1000 --user-data-dir="$work/chromium" \
    --screenshot="$PWD/docs/pictures/report.png" "file://$work/page.html" 2> "$work/chromium.log"
ls -l docs/pictures/*.svg docs/pictures/*.png
