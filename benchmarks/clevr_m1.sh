#!/usr/bin/env bash
# Everything behind the tables of clevr-m1 on one GPU: the data, clevr-m1, its per-view baseline and three seeds of compact
# side by side, their scores and pictures. Usage: benchmarks/clevr_m1.sh WORK [STEPS] [DEVICE]
# WORK/results then holds one JSON a row of a table; `viewslots report WORK/results --out DIR` sets them beside the paper's.
set -uo pipefail
work=$1 steps=${2:-40000} device=${3:-cuda}
export OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1
mkdir -p "$work/results" "$work/logs"
began=$(date +%s)
viewslots() { python3 -m viewslots "$@"; }
note() { echo "$(( $(date +%s) - began )) s: $*"; }

# Several processes on one GPU run side by side, not in turns, where NVIDIA's multi-process service can be had.
[ "$device" = cuda ] && nvidia-cuda-mps-control -d

viewslots make-data clevr-m1 --out "$work/data" --device "$device" ${DATA_OPTIONS:-} > "$work/logs/data.log" 2>&1
note data

score() { # run, name
  for split in test1 test2; do
    for views in 1 2 4 8; do
      viewslots evaluate "$1" --data "$work/data" --split $split --views $views --slots $([ $split = test1 ] && echo 7 || echo 11) \
        --repeats 5 --device "$device" --out "$work/results/$2-$split-m$views.json" > "$work/logs/$2-$split-m$views.log" 2>&1 &
    done
    [ "$2" = per-view ] || [ "$2" = kmeans ] && continue
    for given in 1 2 4; do
      viewslots estimate-viewpoints "$1" --data "$work/data" --split $split --given $given --new 4 --repeats 5 \
        --device "$device" --out "$work/results/$2-$split-given$given.json" > "$work/logs/$2-$split-given$given.log" 2>&1 &
    done
  done
  wait
  note "scores of $2"
}

train() { # name, options
  name=$1; shift
  viewslots train "$@" --data "$work/data" --run "$work/$name" --steps "$steps" --validate-every $((steps / 10)) \
    --checkpoint-every $((steps / 2)) --device "$device" ${TRAIN_OPTIONS:-} > "$work/logs/$name.log" 2>&1
  note "trained $name: $?"
}

(train clevr-m1 "${BIG:-clevr-m1}" && score "$work/clevr-m1" clevr-m1) &
(train per-view "${BIG:-clevr-m1}" --method per-view && score "$work/per-view" per-view) &
(train compact compact --seeds 0,1,2 && for seed in 0 1 2; do score "$work/compact/seed-$seed" compact-$seed; done) &
wait
note done
