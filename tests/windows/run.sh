#!/usr/bin/env bash
# Builds the Windows program here and tries it under Wine: the smoke test on every adapter that works there, five training steps
# beside those of Linux, and Microsoft's two shader compilers over every kernel. By hand: it takes half an hour.
#
#   tests/windows/run.sh [smoke] [steps] [compilers]     all three if none is named
#
# Needs Debian's gcc-mingw-w64-x86-64, wine64, wine, xvfb and xauth, and for the compilers npm, whose package `webgpu` carries
# both libraries; nothing of theirs is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

for program in x86_64-w64-mingw32-gcc wine xvfb-run; do
    command -v "$program" >/dev/null || {
        echo "$program is missing: apt-get install gcc-mingw-w64-x86-64 wine64 wine xvfb xauth" >&2
        exit 1
    }
done

work=$PWD/target/windows
mkdir -p "$work"
export WINEPREFIX=$work/prefix WINEDEBUG=-all WINEARCH=win64
export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=x86_64-w64-mingw32-gcc
triple=x86_64-pc-windows-gnu
built=target/$triple/debug

# under_wine PROGRAM ARGUMENT...: with a virtual screen, which Vulkan's window code needs.
under_wine() { xvfb-run -a wine "$@"; }

rustup target add "$triple"
cargo build --target "$triple" -p lapwing -p lapwing-tests --bins --examples
x86_64-w64-mingw32-gcc -O2 -shared -o "$work/bcryptprimitives.dll" tests/windows/bcryptprimitives.c -ladvapi32
cp "$work/bcryptprimitives.dll" "$built/"
cp "$work/bcryptprimitives.dll" "$built/examples/"

smoke() {
    under_wine "$built/examples/smoke.exe" "vulkan llvmpipe" | tr -d '\r' | tee "$work/smoke.txt"
    grep -q '^result     lapwing is right' "$work/smoke.txt"
}

# A run's metrics but for times.
numbers() {
    sed -E 's/"(time|seconds_[a-z]+)":[^,}]*,?//g' "$1/metrics.jsonl"
}

steps() {
    rm -rf "$work/here" "$work/there"
    cargo run --quiet -p lapwing -- train frozen-lake --steps 5 --out "$work/here" >/dev/null
    local index
    index=$(under_wine "$built/lapwing.exe" devices | tr -d '\r' | sed -n 's/^\([0-9]*\): llvmpipe.*/\1/p' | head -n 1)
    under_wine "$built/lapwing.exe" --device "$index" train frozen-lake --steps 5 --out "Z:${work//\//\\}\\there" >/dev/null
    if ! diff <(numbers "$work/here") <(numbers "$work/there"); then
        echo "the five steps of Windows are not those of Linux" >&2
        return 1
    fi
    echo "steps: the five steps of Windows are bit-identical to those of Linux"
}

compilers() {
    local translations=$work/translations
    mkdir -p "$work/dawn"
    npm install --silent --no-audit --no-fund --prefix "$work/dawn" webgpu@0.6.2 >/dev/null
    # In a folder of their own: wgpu would find them, too.
    mkdir -p "$work/compilers"
    cp "$work/dawn/node_modules/webgpu/dist/win32-x64/"{d3dcompiler_47,dxcompiler}.dll \
        "$built/examples/hlsl.exe" "$work/bcryptprimitives.dll" "$work/compilers/"
    rm -rf "$translations"
    cargo run --quiet -p lapwing-tests --example translations -- "$translations"
    local compiler status=0
    for compiler in fxc dxc; do
        WINEDLLOVERRIDES="d3dcompiler_47=n;dxcompiler=n" under_wine "$work/compilers/hlsl.exe" \
            "Z:${translations//\//\\}" "$compiler" | tr -d '\r' || status=1
    done
    return "$status"
}

[ $# -gt 0 ] || set -- smoke steps compilers
for part in "$@"; do "$part"; done
