#!/usr/bin/env bash
# How much of one's own data does fine-tuning need? A world that no shipped model has seen (benchmarks/another_world.py), as folders of
# pictures without truth; umbra-quick as it is, fine-tuned on 40, 200 and 1,000 scenes, and umbra from scratch on as many.
# Usage: benchmarks/fine_tuning.sh WORK [DEVICE]. WORK/fine_tuning.json then has all scores; about three minutes on one H200, side by side.
# Of each set every tenth scene is for validation, as import-data does it. The truth of the 100 test scenes is used for scores alone.
# SCENES, SCRATCH_STEPS, MODEL, EXPERIMENT, SIZE, TEST_SCENES, SEED, TRAIN_OPTIONS, SCORE_OPTIONS: other sizes.
set -uo pipefail
work=$1 device=${2:-cuda}
scenes=${SCENES:-40 200 1000} scratch=${SCRATCH_STEPS:-4000} model=${MODEL:-umbra-quick} experiment=${EXPERIMENT:-umbra}
size=${SIZE:-64x64} tests=${TEST_SCENES:-100} seed=${SEED:-0}
here=$(dirname "$0")
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
. "$here/common.sh"

most=$(printf '%s\n' $scenes | sort -n | tail -1)
python3 "$here/another_world.py" --out "$work/truth" --size "$size" --train-scenes "$most" --valid-scenes 0 --test-scenes "$tests" \
  --seed "$seed" --device "$device" > "$work/logs/world.log" 2>&1 &&
  viewslots export-data "$work/truth" --out "$work/folders" > "$work/logs/export.log" 2>&1
done_with "pictures" $? || exit 1

blind() { # number of scenes: the first ones, without masks and cameras
  local rest=()
  [ "$1" -lt "$most" ] && rest=(--split "none=$1-$((most - 1))")
  viewslots import-data pictures "$work/folders/train" --out "$work/blind-$1" --no-masks --no-cameras "${rest[@]}" > "$work/logs/import-$1.log" 2>&1
  done_with "imported $1" $?
}

train() { # name, scenes, options
  viewslots train "$experiment" --data "$work/blind-$2" --run "$work/runs/$1" --seed "$seed" --device "$device" --checkpoint-every 100000 \
    "${@:3}" ${TRAIN_OPTIONS:-} > "$work/logs/$1.log" 2>&1
  done_with "trained $1" $?
}

score() { # name, run or model
  viewslots evaluate "$2" --data "$work/truth" --split test1 --views 4 --slots 7 --repeats 1 --device "$device" --batch 100 --no-extras \
    ${SCORE_OPTIONS:-} --out "$work/results/$1.json" > "$work/logs/score-$1.log" 2>&1
  done_with "scored $1" $?
}

score zero-shot "$model" &
for count in $scenes; do
  (
    blind "$count" || exit
    (train "tuned-$count" "$count" --init "$model" ${TUNE_OPTIONS:-} && score "tuned-$count" "$work/runs/tuned-$count") &
    (train "scratch-$count" "$count" --steps "$scratch" && score "scratch-$count" "$work/runs/scratch-$count") &
    wait
  ) &
done
wait
python3 "$here/fine_tuning.py" "$work" --command "$(printf '%q ' "$0" "$@")"
note done
[ "$device" = cuda ] && echo quit | nvidia-cuda-mps-control
! grep -qv -e ': 0$' -e 'done$' "$work/logs/progress.log"
