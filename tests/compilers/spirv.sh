#!/usr/bin/env bash
# Validates SPIR-V files with Khronos' spirv-val (Debian: spirv-tools). Says which were refused, and fails if any was.
#
# tests/compilers/spirv.sh FOLDER
set -euo pipefail
files=("$1"/*.spv)
refused=0
for file in "${files[@]}"; do
    if ! said=$(spirv-val --target-env vulkan1.1 "$file" 2>&1); then
        refused=$((refused + 1))
        printf '%s: %s\n' "$(basename "$file")" "$said"
    fi
done
printf 'spirv-val: %d files, %d refused\n' "${#files[@]}" "$refused"
[ "$refused" -eq 0 ]
