#!/usr/bin/env bash
# Everything behind the tables of clevr-m1 on one GPU: the data, clevr-m1, three seeds of compact and the per-view baseline of the
# same size side by side, their scores and pictures. Usage: benchmarks/clevr_m1.sh WORK [STEPS] [DEVICE]
# WORK/results then holds one JSON a row of a table, WORK/report sets them beside the paper's, WORK/figures shows the large model.
# DATA_OPTIONS, TRAIN_OPTIONS, SCORE_OPTIONS: more options of make-data, train and evaluate. BIG, SMALL: other presets.
# What umbra makes of the three seeds of compact: benchmarks/umbra.sh.
set -uo pipefail
work=$1 steps=${2:-40000} device=${3:-cuda}
big=${BIG:-clevr-m1} small=${SMALL:-compact}
export OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1
. "$(dirname "$0")/common.sh"

if [ ! -e "$work/data/meta.json" ]; then
  viewslots make-data clevr-m1 --out "$work/data" --device "$device" ${DATA_OPTIONS:-} > "$work/logs/data.log" 2>&1
  note "data: $?"
fi

evaluate() { # run, name, split, views
  viewslots evaluate "$1" --data "$work/data" --split "$3" --views "$4" --slots "$([ "$3" = test1 ] && echo 7 || echo 11)" \
    --repeats 5 --device "$device" ${SCORE_OPTIONS:-} --out "$work/results/$2-$3-m$4.json" > "$work/logs/$2-$3-m$4.log" 2>&1
}

estimate() { # run, name, split, given
  viewslots estimate-viewpoints "$1" --data "$work/data" --split "$3" --given "$4" --new 4 --repeats 5 --device "$device" \
    ${SCORE_OPTIONS:-} --out "$work/results/$2-$3-given$4.json" > "$work/logs/$2-$3-given$4.log" 2>&1
}

room() { # waits until fewer than four scores of this model are being computed: each takes gigabytes
  while [ "$(jobs -rp | wc -l)" -ge 4 ]; do wait -n; done
}

score() { # run, name, then anything for viewpoints as well
  for split in test1 test2; do
    for views in 4 1 2 8; do room; evaluate "$1" "$2" $split $views & done
    [ $# -gt 2 ] && for given in 1 2 4; do room; estimate "$1" "$2" $split $given & done
  done
  wait
  note "scores of $2"
}

train() { # name, steps, options
  name=$1 length=$2
  shift 2
  viewslots train "$@" --data "$work/data" --run "$work/$name" --steps "$length" --validate-every $((length / 10)) \
    --checkpoint-every $((length / 2)) --device "$device" ${TRAIN_OPTIONS:-} > "$work/logs/$name.log" 2>&1
  note "trained $name: $?"
}

draw() { # run, name
  viewslots figures "$1" --data "$work/data" --device "$device" --out "$work/figures/$2" > "$work/logs/$2-figures.log" 2>&1
  note "figures of $2: $?"
}

(renice -n 19 $BASHPID > /dev/null; score kmeans kmeans) &
(train "$big" "$steps" "$big"; draw "$work/$big" "$big" & score "$work/$big" "$big" viewpoints) &
(train per-view "$steps" "$small" --method per-view; score "$work/per-view" per-view) &
for seed in 0 1 2; do
  (
    train "$small-$seed" "$steps" "$small" --seed $seed
    score "$work/$small-$seed" "$small-$seed" viewpoints
  ) &
done
wait
viewslots report "$work/results" --out "$work/report" > "$work/logs/report.log" 2>&1
note "report: $?"
[ "$device" = cuda ] && echo quit | nvidia-cuda-mps-control
! grep -qv -e ': 0$' -e 'scores of' "$work/logs/progress.log"
