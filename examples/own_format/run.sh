#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The formats of own_format.cpp, as text, through the command: the same values, and their codes listed.
#
#   run.sh QK OWN_FORMAT
set -euo pipefail
qk=$1 own_format=$2
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
"$own_format" "$folder" > /dev/null
for name in blocks codebook; do
    text=$(cat "$folder/$name.txt")
    "$qk" convert "$folder/x.npy" "$folder/y.npy" --format "$text"
    "$qk" compare "$folder/x.npy" "$folder/$name.npy" --format "$text" > "$folder/report"
    tail -c 256 "$folder/y.npy" | cmp - <(tail -c 256 "$folder/$name.npy")  # 64 values
    echo "$text: the command's values are the program's"
done
"$qk" formats "$text" --codes | tee "$folder/codes" | sed -n 1,8p
grep -q '^ *4  0x4  100  0.125$' "$folder/codes"
