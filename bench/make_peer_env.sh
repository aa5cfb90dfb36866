#!/bin/sh
# Builds the environment that bench/peers.py starts the peers in:
#
#     sh bench/make_peer_env.sh DIRECTORY
#
# Python 3.11 or later; the packages take about two gigabytes. The releases are those that the peers' figures were made
# with; torch and transformers are batchzs' own (constraints.txt), so that a difference is not torch's. Where the
# machine has torch's CPU build at hand under another index, name it with PIP_EXTRA_INDEX_URL.
set -eu
directory=${1:?usage: make_peer_env.sh DIRECTORY}
here=$(cd "$(dirname "$0")/.." && pwd)
pins=$(mktemp)
trap 'rm -f "$pins"' EXIT
grep -E '^(torch|transformers|tokenizers|numpy|safetensors)==' "$here/constraints.txt" >"$pins"
python3 -m venv "$directory"
# onnxscript is what torch exports to ONNX with.
"$directory/bin/pip" install -q -c "$pins" \
    torch transformers \
    sentence-transformers==6.2.0 \
    onnx==1.23.2 \
    onnxscript==0.7.2 \
    onnxruntime==1.31.1 \
    openvino==2026.4.1
"$directory/bin/pip" check
