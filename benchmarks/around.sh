#!/usr/bin/env bash
# Umbra all around, longer: the shipped umbra-quick goes on on clevr-mixed without its glimpses, with shadows in boxes twice and
# four times as large as objects; then glimpses anew. Usage: benchmarks/around.sh WORK [DEVICE]
# WORK/results then holds one JSON a row, WORK/runs the run folders.
# REACHES; WIDE, LOOKS: steps. DATA_OPTIONS, TEST_OPTIONS, TRAIN_OPTIONS, SCORE_OPTIONS: other sizes.
set -uo pipefail
work=$1 device=${2:-cuda}
wide=${WIDE:-32000} looks=${LOOKS:-4000}
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
. "$(dirname "$0")/common.sh"

data() { # data set, options
  viewslots make-data "$1" --out "$work/$1" --device "$device" "${@:2}" > "$work/logs/data-$1.log" 2>&1
  done_with "data $1" $?
}

train() { # name, steps, validations, preset, options
  local name=$1 length=$2 every=$(($2 / $3)) preset=$4
  viewslots train "$preset" --data "$work/clevr-mixed" --run "$work/runs/$name" --steps "$length" --validate-every "$every" \
    --checkpoint-every "$every" --device "$device" --seed 11 "${@:5}" ${TRAIN_OPTIONS:-} > "$work/logs/$name.log" 2>&1
  done_with "trained $name" $?
}

score() { # name, run, data, split, slots, options
  viewslots evaluate "$work/runs/$2" --data "$work/$3" --split "$4" --slots "$5" --views 4 --repeats 1 --device "$device" \
    --batch 100 "${@:6}" ${SCORE_OPTIONS:-} --out "$work/results/$1.json" > "$work/logs/score-$1.log" 2>&1
  done_with "scored $1" $?
}

chain() { # reach
  train "around-$1" "$wide" 8 umbra/clevr-mixed --init umbra-quick --set model.box_reach="$1" \
    --set schedule.mixture_until=0 --set schedule.costs_until=0 &&
    train "quick-$1" "$looks" 2 umbra-glimpses/clevr-mixed --init "$work/runs/around-$1" || return
  score "quick-$1-valid" "quick-$1" clevr-mixed valid 7 --no-extras
  for set in m1 m4; do score "quick-$1-$set-test1" "quick-$1" "clevr-$set" test1 7; done
  score "quick-$1-m1-test2" "quick-$1" clevr-m1 test2 11
  for set in m2 m3; do score "quick-$1-$set-test1" "quick-$1" "clevr-$set" test1 7; done
  score "quick-$1-m1-test1-refined" "quick-$1" clevr-m1 test1 7 --looks 1 --refine 30
}

data clevr-mixed --test-scenes 0 ${DATA_OPTIONS:-} || exit 1
for reach in ${REACHES:-2 4}; do chain "$reach" & done
for set in m1 m2 m3 m4; do data "clevr-$set" --train-scenes 0 --valid-scenes 0 ${TEST_OPTIONS:-}; done
wait
note done
