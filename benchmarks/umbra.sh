#!/usr/bin/env bash
# What is behind docs/results/umbra, but for Blender's pictures, on one GPU: umbra on clevr-m1 from three seeds of compact, and on clevr-m2, m3, m4 from one of
# them by way of compact on the same pictures. Usage: benchmarks/umbra.sh WORK COMPACTS [DEVICE], where COMPACTS holds compact-0,
# compact-1 and compact-2 (benchmarks/clevr_m1.sh makes them). WORK/results then holds one JSON a row, WORK/report sets them beside the paper's.
# STEPS, COMPACT_STEPS, DATA_OPTIONS, LARGE, TRAIN_OPTIONS, SCORE_OPTIONS: other lengths and sizes.
set -uo pipefail
work=$1 compacts=$2 device=${3:-cuda}
steps=${STEPS:-16000} compact_steps=${COMPACT_STEPS:-16000} large=${LARGE:-1000}
export OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1
. "$(dirname "$0")/common.sh"

data() { # number of the data set, options
  viewslots make-data "clevr-m$1" --out "$work/m$1" --device "$device" "${@:2}" ${DATA_OPTIONS:-} > "$work/logs/data-m$1.log" 2>&1
  note "data m$1: $?"
}

train() { # name, steps, data, preset, options
  local name=$1 length=$2 pictures=$3 preset=$4
  shift 4
  viewslots train "$preset" --data "$work/$pictures" --run "$work/$name" --steps "$length" --validate-every $((length / 4)) \
    --checkpoint-every "$length" --device "$device" ${TRAIN_OPTIONS:-} "$@" > "$work/logs/$name.log" 2>&1
  done_with "trained $name" $?
}

score() { # name, data, split, slots, repeats
  viewslots evaluate "$work/$1" --data "$work/$2" --split "$3" --views 4 --slots "$4" --repeats "$5" --device "$device" \
    --batch 100 --no-extras ${SCORE_OPTIONS:-} --out "$work/results/$1-$3-m4.json" > "$work/logs/$1-$3-m4.log" 2>&1
  done_with "scored $1 on $3" $?
}

data 1 --large-scenes "$large"
for seed in 0 1 2; do
  (
    train "umbra-$seed" "$steps" m1 umbra --init "$compacts/compact-$seed" --seed $seed || exit
    score "umbra-$seed" m1 test1-large 7 1 & score "umbra-$seed" m1 test1 7 3
    wait
    score "umbra-$seed" m1 test2-large 11 1 & score "umbra-$seed" m1 test2 11 3
    wait
  ) &
done
for number in 2 3 4; do
  data $number --large-scenes 0
  (
    train "compact-m$number" "$compact_steps" "m$number" compact --init "$compacts/compact-1" --seed 1 --learning-rate 2e-4 \
      --set optimisation.single_view_steps=0 &&
      train "umbra-m$number" "$steps" "m$number" umbra --init "$work/compact-m$number" --seed 1 &&
      score "umbra-m$number" "m$number" test1 7 1 &&
      score "umbra-m$number" "m$number" test2 11 1
  ) &
done
wait
viewslots report "$work/results" --out "$work/report" > "$work/logs/report.log" 2>&1
note "report: $?"
[ "$device" = cuda ] && echo quit | nvidia-cuda-mps-control
! grep -qv ': 0$' "$work/logs/progress.log"
