#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Says how to get the open RTL of docs/results/open_rtl.md, and shows that qk gives what the page calls right. It fetches nothing.
#
#   tests/open_rtl.sh QK
#
# Exit status 1 where qk gives something else.
set -uo pipefail
[ $# -eq 1 ] || { sed -n '3,7s/^# \{0,1\}//p' "$0"; exit 2; }
qk=$1
cat <<'END'
git clone https://github.com/ToxConst/systolic_array && git -C systolic_array checkout 301629be
git clone https://github.com/pulp-platform/cvfpu && git -C cvfpu checkout e5aa6a01
git clone https://github.com/pulp-platform/common_cells && git -C common_cells checkout 6aeee85d
git clone https://github.com/KULeuven-MICAS/Precision-Scalable_MX && git -C Precision-Scalable_MX checkout 5e02c516
git clone https://github.com/cornell-brg/berkeley-hardfloat && git -C berkeley-hardfloat checkout f3d7e8b6
pip install pyrtl==1.0.3
pip install --no-deps libresoc-ieee754fpu==0.0.1 libresoc-nmutil==0.0.1 nmigen==0.2

Wrap a unit in a module that reads the lines of `qk gen F` by $fscanf and writes each with its result behind, build it by
`verilator --binary`, and run `qk gen F | ./obj_dir/Vbench | qk ver F`. Units of PyRTL run in Python, under pyrtl.FastSimulation.
END
failed=0
# right WORDS-OF-A-LINE-WITH-ITS-RESULT OPTIONS...
right() {
    local line=$1
    shift
    if echo "$line" | "$qk" ver "$@" >/dev/null 2>&1; then echo "right: $line ($*)"; else echo "NOT what qk gives: $line ($*)"; failed=1; fi
}
right "b86293dd 84" fp8_e5m2
right "3c72333d 08" fp8_e4m3
right "7f800001 7fc0" bf16
right "7fffffff 7fc0" bf16
right "7f800000 7c" fp8_e5m2 --rounding toward-zero --overflow ieee
right "82 81 07 8a 0000 8000" --accumulator sum=exact,c=fp16,result=fp16 --a-format fp8_e5m2 --b-format fp8_e5m2 --k 2
right "a800 3c00 5800 5800" --accumulator sum=exact,c=fp16,result=fp16,flush-inputs=kept-sign,flush-partials --a-format fp16 --b-format fp16 --k 1
right "bf80 3f80 3f7f bb80" --accumulator sum=exact,c=bf16,result=bf16,flush-inputs=kept-sign,flush-partials --a-format bf16 --b-format bf16 --k 1
exit $failed
