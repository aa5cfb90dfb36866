#!/bin/sh
# Checks and measures batchzs on an NVIDIA GPU in at most eight minutes; run it from anywhere, arguments go on to
# bench/gpu.py, which says what it needs. Results are printed and written to $OUT/gpu.json (OUT: ./out) section by section.
set -eu
OUT=${OUT:-$PWD/out}
export OUT PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
cd "$(dirname "$0")/.."
exec timeout 480 "${PYTHON:-python3}" -m bench.gpu "$@"
