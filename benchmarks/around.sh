#!/usr/bin/env bash
# Umbra all around, from scratch, for every seed: first stage and umbra on clevr-m1, umbra on clevr-mixed, glimpses.
# Usage: benchmarks/around.sh WORK [DEVICE]. WORK/results then holds one JSON a row, WORK/runs the run folders.
# SEEDS; FIRST, SECOND, WIDE, LOOKS: steps. DATA_OPTIONS, TRAIN_OPTIONS: other sizes.
set -uo pipefail
work=$1 device=${2:-cuda}
first=${FIRST:-12000} second=${SECOND:-6000} wide=${WIDE:-40000} looks=${LOOKS:-5000}
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
. "$(dirname "$0")/common.sh"

data() { # data set, options
  viewslots make-data "$1" --out "$work/$1" --device "$device" "${@:2}" ${DATA_OPTIONS:-} > "$work/logs/data-$1.log" 2>&1
  done_with "data $1" $?
}

train() { # name, steps, validations, data, preset, options
  local name=$1 length=$2 every=$(($2 / $3)) pictures=$4 preset=$5
  viewslots train "$preset" --data "$work/$pictures" --run "$work/runs/$name" --steps "$length" --validate-every "$every" \
    --checkpoint-every "$every" --device "$device" "${@:6}" ${TRAIN_OPTIONS:-} > "$work/logs/$name.log" 2>&1
  done_with "trained $name" $?
}

chain() { # seed
  train "first-$1" "$first" 3 clevr-m1 ocloc-first/clevr-m1 --seed "$1" &&
    train "umbra-$1" "$second" 2 clevr-m1 umbra/clevr-m1 --seed "$1" --init "$work/runs/first-$1" || return
  while [ ! -f "$work/mixed.ready" ]; do sleep 1; done
  train "around-$1" "$wide" 8 clevr-mixed umbra/clevr-mixed --seed "$1" --init "$work/runs/umbra-$1" &&
    train "quick-$1" "$looks" 4 clevr-mixed umbra-glimpses/clevr-mixed --seed "$1" --init "$work/runs/around-$1"
}

data clevr-m1 || exit 1
for seed in ${SEEDS:-21 22 23}; do chain "$seed" & done
data clevr-mixed && touch "$work/mixed.ready"
wait
note done
