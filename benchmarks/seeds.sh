#!/usr/bin/env bash
# How many fresh seeds find objects: the short recipe (compact with sigma_x .1, feature_kernel 5, log_sigma -3, then umbra) from
# scratch for every seed, on clevr-m1 and on all four multi-view sets together (clevr-mixed). No seed is chosen or left out.
# Usage: benchmarks/seeds.sh WORK [DEVICE]. WORK/results then holds one JSON a row, WORK/runs the run folders.
# M1_SEEDS, MIXED_SEEDS, COMPACT_STEPS, UMBRA_STEPS, MIXED_STEPS, DATA_OPTIONS, TRAIN_OPTIONS, SCORE_OPTIONS: other sizes.
set -uo pipefail
work=$1 device=${2:-cuda}
m1_seeds=${M1_SEEDS:-10 11 12 13 14 15 16 17 18 19} mixed_seeds=${MIXED_SEEDS:-20 21}
first=${COMPACT_STEPS:-12000} second=${UMBRA_STEPS:-5000} mixed_second=${MIXED_STEPS:-8000}
networks=(--set model.feature_kernel=5)
recipe=(--set model.sigma_x=0.1 --set model.start.log_sigma=-3.0)
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
. "$(dirname "$0")/common.sh"

data() { # data set, options
  viewslots make-data "$1" --out "$work/$1" --device "$device" "${@:2}" ${DATA_OPTIONS:-} > "$work/logs/data-$1.log" 2>&1
  done_with "data $1" $?
}

train() { # name, steps, validations, data, preset, options
  local name=$1 length=$2 every=$(($2 / $3)) pictures=$4 preset=$5
  viewslots train "$preset" --data "$work/$pictures" --run "$work/runs/$name" --steps "$length" --validate-every "$every" \
    --checkpoint-every "$length" --device "$device" "${networks[@]}" "${@:6}" ${TRAIN_OPTIONS:-} > "$work/logs/$name.log" 2>&1
  done_with "trained $name" $?
}

score() { # name, run, data, split, slots, options
  viewslots evaluate "$work/runs/$2" --data "$work/$3" --split "$4" --views 4 --slots "$5" --repeats 1 --device "$device" \
    --batch 100 "${@:6}" ${SCORE_OPTIONS:-} --out "$work/results/$1.json" > "$work/logs/score-$1.log" 2>&1
  done_with "scored $1" $?
}

chain() { # seed, data, steps of the second stage
  train "compact-$1" "$first" 6 "$2" compact --seed "$1" "${recipe[@]}" &&
    train "umbra-$1" "$3" 2 "$2" umbra --seed "$1" --init "$work/runs/compact-$1"
}

data clevr-m1 || exit 1
for seed in $m1_seeds; do
  (chain "$seed" clevr-m1 "$second" && score "umbra-$seed-m1-test1" "umbra-$seed" clevr-m1 test1 7 --no-extras) &
done
data clevr-mixed
for seed in $mixed_seeds; do
  (
    chain "$seed" clevr-mixed "$mixed_second" || exit
    for set in m1 m2 m3 m4; do score "umbra-$seed-$set-test1" "umbra-$seed" "clevr-$set" test1 7 --no-extras; done
    for set in m1 m3; do score "umbra-$seed-$set-test2" "umbra-$seed" "clevr-$set" test2 11 --no-extras; done
  ) &
done
for set in m2 m3 m4; do data "clevr-$set" --train-scenes 0 --valid-scenes 0; done
wait
note done
[ "$device" = cuda ] && echo quit | nvidia-cuda-mps-control
! grep -qv -e ': 0$' -e 'done$' "$work/logs/progress.log"
