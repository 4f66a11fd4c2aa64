#!/usr/bin/env bash
# Umbra on 32x32 pixels for experiments on one core of a CPU (8 steps a second with --views 1), data averaged down from 64x64.
# Usage: benchmarks/small_umbra.sh DATA RUN [options of viewslots train]; RATE: another learning rate than 2e-3.
set -euo pipefail
data=$1 run=$2
shift 2
export OMP_NUM_THREADS=1
exec viewslots train umbra --data "$data" --run "$run" --device cpu --batch 16 --learning-rate "${RATE:-2e-3}" \
  --set model.image_size=32 --set model.feature_stride=1 --set model.feature_channels=32 --set model.feature_layers=3 \
  --set model.hidden=128 --set model.slot_attr_dim=64 --set model.key_dim=32 --set model.value_dim=72 \
  --set model.attr_dim=32 --set model.update_hidden=64 \
  --set model.object_decoder.hidden=[256,256] --set model.object_decoder.grid=8 --set model.object_decoder.grid_channels=48 \
  --set 'model.object_decoder.stages=[[1,3,48],[2,3,24]]' \
  --set model.background_decoder.hidden=[64] --set model.background_decoder.grid=8 \
  --set model.background_decoder.grid_channels=16 --set 'model.background_decoder.stages=[[1,3,8]]' \
  --set model.background_decoder.final_scale=4 "$@"
