#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzzers (preset fuzz: clang, AddressSanitizer, UndefinedBehaviorSanitizer), runs each of them and the differential one, keeps
# what crashes, and prints a table.
#
#     tests/fuzz.sh MINUTES [NAME ...]
#
# NAME: model_bytes, inputs, safetensors_bytes, gguf_bytes, differential; without one all of them, each for MINUTES, one after the other on
# one core. FUZZ_FOLDER (build/fuzzing) keeps the corpus from run to run and what was found: FUZZER/crash-*, oom-*, timeout-*; an input of
# more than 512 MB or ten seconds counts as found. `build/fuzz/tests/fuzz_NAME FILE` runs one again. The differential fuzzer takes the Python
# package of build/release (`./dev build` with QK_BUILD_PYTHON makes it) and another seed each day. Exit status 1 where anything was found.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
minutes=${1:?"tests/fuzz.sh MINUTES [NAME ...]"}
shift
fuzzers=(model_bytes inputs safetensors_bytes gguf_bytes)
names=("$@")
[ ${#names[@]} -gt 0 ] || names=("${fuzzers[@]}" differential)
seconds=$(python3 -c "import sys; print(max(1, round(60 * float(sys.argv[1]))))" "$minutes") || exit 2
folder=$(realpath -m "${FUZZ_FOLDER:-build/fuzzing}")
mkdir -p "$folder"

targets=()
for name in "${names[@]}"; do
    case " ${fuzzers[*]} differential " in
        *" $name "*) [ "$name" = differential ] || targets+=("fuzz_$name") ;;
        *) echo "there is no fuzzer $name; there are ${fuzzers[*]} and differential" >&2; exit 2 ;;
    esac
done
if [ ${#targets[@]} -gt 0 ]; then
    # shellcheck disable=SC2086  # options of cmake, as CMAKE_ARGUMENTS has them
    cmake --preset fuzz ${CMAKE_ARGUMENTS:-} >/dev/null && cmake --build build/fuzz --target "${targets[@]}" || exit 2
fi

fuzz() { # fuzz NAME: runs one of libFuzzer's; its last words are the log's
    local name=$1 own=$folder/$1
    local options=(-rss_limit_mb=512 -timeout=10 -max_len=65536 "-max_total_time=$seconds" -print_final_stats=1 "-artifact_prefix=$own/")
    local seeds=("tests/fuzz/corpus/${1%_bytes}")
    mkdir -p "$own/corpus"
    [ "$name" != inputs ] || options+=(-dict=tests/fuzz/inputs.dict)
    [ "$name" != model_bytes ] || seeds+=(build/fuzz/test_data/onnx_node_tests)
    local present=()
    for seed in "${seeds[@]}"; do [ ! -d "$seed" ] || present+=("$seed"); done
    # What was found does not end a run: libFuzzer is started again for the time that is left. (Memory that was freed and that
    # AddressSanitizer keeps back, 256 MB by default, would count towards the 512.)
    local start=$SECONDS starts=0
    : >"$own/log"
    while [ $((SECONDS - start)) -lt "$seconds" ] && [ $((starts += 1)) -le 50 ]; do
        options[3]="-max_total_time=$((seconds - (SECONDS - start)))"
        ASAN_OPTIONS=quarantine_size_mb=32:${ASAN_OPTIONS:-} "build/fuzz/tests/fuzz_$name" "${options[@]}" "$own/corpus" "${present[@]}" >>"$own/log" 2>&1 && break
    done
}

found=0
rows=()
for name in "${names[@]}"; do
    echo "$name: $seconds s, from $(date +%H:%M:%S)"
    if [ "$name" = differential ]; then
        python=${QK_PYTHON:-build/venv/bin/python}
        PYTHONPATH=build/release/python/package "$python" tests/fuzz/differential.py --seed "$(date +%Y%m%d)" --seconds "$seconds" --out "$folder/differential" \
            >"$folder/differential.log" 2>&1
        status=$?
        tries=$(sed -n 's/^seed .*: \([0-9]*\) graphs.*/\1/p' "$folder/differential.log")
        things=$(find "$folder/differential" -name '*.onnx' 2>/dev/null | wc -l)
        [ $status -eq 0 ] || [ "$things" -gt 0 ] || things="exit status $status"
        rows+=("$(printf '%-20s %12s %10s %8s  %s' "$name" "${tries:-?}" "$seconds" "-" "$things")")
    else
        fuzz "$name"
        tries=$(awk '/stat::number_of_executed_units/ {n += $2} END {print n + 0}' "$folder/$name/log")
        peak=$(awk '/stat::peak_rss_mb/ && $2 > n {n = $2} END {print n + 0}' "$folder/$name/log")
        things=$(find "$folder/$name" -maxdepth 1 \( -name 'crash-*' -o -name 'oom-*' -o -name 'timeout-*' -o -name 'leak-*' \) | wc -l)
        rows+=("$(printf '%-20s %12s %10s %8s  %s' "$name" "$tries" "$seconds" "$peak" "$things")")
        [ "$tries" -gt 0 ] || things="nothing ran"
    fi
    [ "$things" = 0 ] || found=1
done
printf '%-20s %12s %10s %8s  %s\n' fuzzer inputs seconds "peak MB" found
printf '%s\n' "${rows[@]}"
echo "what was found, and the logs: $folder"
exit $found
