# What the benchmark scripts share; they set work and device first.
mkdir -p "$work/results" "$work/logs" "$work/runs"
viewslots() { python3 -m viewslots "$@"; }
note() { echo "$SECONDS s: $*" | tee -a "$work/logs/progress.log"; }
done_with() { note "$1: $2"; return "$2"; }

# Several processes on one GPU run side by side, not in turns, where NVIDIA's multi-process service can be had.
[ "$device" = cuda ] && nvidia-cuda-mps-control -d
