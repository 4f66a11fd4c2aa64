#!/usr/bin/env bash
# Umbra that draws objects in boxes, from scratch: clevr-m1 (two seeds), dSprites, Abstract; then all around.
# Usage: benchmarks/boxed.sh WORK [DEVICE]. WORK/results then holds one JSON a row, WORK/runs the run folders.
# FIRST, SECOND, WIDE, SINGLE_FIRST, SINGLE_SECOND: steps. DATA_OPTIONS, TRAIN_OPTIONS, SCORE_OPTIONS: other sizes.
set -uo pipefail
work=$1 device=${2:-cuda}
first=${FIRST:-12000} second=${SECOND:-6000} wide=${WIDE:-12000}
single_first=${SINGLE_FIRST:-15000} single_second=${SINGLE_SECOND:-8000}
boxes=(--set model.box_fit=100 --set model.object_decoder.grid=8 --set "model.object_decoder.hidden=[512,512]"
  --set "model.object_decoder.stages=[[1,3,64],[2,3,64],[1,3,32]]" --set model.object_decoder.final_scale=2)
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
. "$(dirname "$0")/common.sh"

data() { # data set, options
  viewslots make-data "$1" --out "$work/$1" --device "$device" "${@:2}" ${DATA_OPTIONS:-} > "$work/logs/data-$1.log" 2>&1
  done_with "data $1" $?
}

train() { # name, steps, validations, data, preset, options
  local name=$1 length=$2 every=$(($2 / $3)) pictures=$4 preset=$5
  viewslots train "$preset" --data "$work/$pictures" --run "$work/runs/$name" --steps "$length" --validate-every "$every" \
    --checkpoint-every "$length" --device "$device" "${@:6}" ${TRAIN_OPTIONS:-} > "$work/logs/$name.log" 2>&1
  done_with "trained $name" $?
}

score() { # name, run, data, split, options
  viewslots evaluate "$work/runs/$2" --data "$work/$3" --split "$4" --repeats 1 --device "$device" \
    --batch 100 "${@:5}" ${SCORE_OPTIONS:-} --out "$work/results/$1.json" > "$work/logs/score-$1.log" 2>&1
  done_with "scored $1" $?
}

several() { # seed
  train "first-$1" "$first" 6 clevr-m1 ocloc-first/clevr-m1 --seed "$1" "${boxes[@]}" &&
    train "umbra-$1" "$second" 3 clevr-m1 umbra/clevr-m1 --seed "$1" --init "$work/runs/first-$1" "${boxes[@]}" &&
    score "umbra-$1-m1-test1" "umbra-$1" clevr-m1 test1 --views 4 --slots 7
}

around() { # seed
  train "wide-$1" "$wide" 4 clevr-mixed umbra/clevr-mixed --seed "$1" --init "$work/runs/umbra-$1" "${boxes[@]}" || return
  for set in m1 m3; do score "wide-$1-$set-test1" "wide-$1" "clevr-$set" test1 --views 4 --slots 7; done
}

single() { # data set
  train "first-$1" "$single_first" 6 "$1" "ocloc-compact/$1" --batch 32 "${boxes[@]}" &&
    train "umbra-$1" "$single_second" 3 "$1" "umbra/$1" --batch 32 --init "$work/runs/first-$1" "${boxes[@]}" &&
    score "umbra-$1-test1" "umbra-$1" "$1" test1 --views 1
}

(data dsprites && single dsprites) &
(data abstract && single abstract) &
data clevr-m1 || exit 1
several 10 &
several 11 && { while [ ! -f "$work/mixed.ready" ]; do sleep 1; done; around 11; } &
data clevr-mixed && data clevr-m3 --train-scenes 0 --valid-scenes 0; touch "$work/mixed.ready"
wait
note done
[ "$device" = cuda ] && echo quit | nvidia-cuda-mps-control
! grep -qv -e ': 0$' -e 'done$' "$work/logs/progress.log"
