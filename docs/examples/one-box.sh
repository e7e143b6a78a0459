#!/bin/bash
# Trains one network on the GPUs of this machine: WORKSPACE=/data/desk bash one-box.sh --amp
# What follows the name of this file goes to klinepred train.
set -euo pipefail

: "${WORKSPACE:?name the folder of the workspace}"
PIPELINE="${PIPELINE:-us-equities-5m}"
GPUS="${GPUS:-8}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$(( ($(nproc) + GPUS - 1) / GPUS ))}"

exec torchrun --standalone --nproc-per-node "$GPUS" --max-restarts 3 \
  -m klinepred train -p "$PIPELINE" -w "$WORKSPACE" "$@"
