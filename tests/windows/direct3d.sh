#!/usr/bin/env bash
# The smoke test through Direct3D 12: Wine's, which turns it into Vulkan (vkd3d), with Microsoft's FXC for the kernels. Wine 8
# computes what is not numbers there; Wine 10 is right, and comes with Debian 13, which is set up in a folder. By hand, as root, after
# tests/windows/run.sh, whose programs it runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

work=$PWD/target/windows
root=${1:-$work/trixie}
if [ ! -e "$root/usr/bin/wine" ]; then
    command -v debootstrap >/dev/null || {
        echo "debootstrap is missing: apt-get install debootstrap" >&2
        exit 1
    }
    debootstrap --variant=minbase trixie "$root" >/dev/null
    chroot "$root" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y -qq --no-install-recommends \
        wine wine64 xvfb xauth libvulkan1 mesa-vulkan-drivers >/dev/null
fi

# The program finds its fixtures where it was built.
here=$root$PWD
mkdir -p "$here"
mount --bind "$PWD" "$here"
mount -t proc proc "$root/proc"
trap 'umount "$root/proc" "$here"' EXIT

mkdir -p "$work/direct3d"
cp target/x86_64-pc-windows-gnu/debug/examples/smoke.exe "$work/bcryptprimitives.dll" \
    "$work/compilers/d3dcompiler_47.dll" "$work/direct3d/"
# Wine's folder is a new one, and its server is ended: it would hold on to what is mounted.
# shellcheck disable=SC2016  # the inner shell is to read these
chroot "$root" env WINEARCH=win64 WINEDEBUG=-all NODEVICE_SELECT=1 WINEDLLOVERRIDES=d3dcompiler_47=n \
    sh -c 'export HOME="$(mktemp -d)"; cd "$0" && xvfb-run -a wine target/windows/direct3d/smoke.exe dx12; wineserver -k; rm -r "$HOME"' "$PWD" |
    tr -d '\r' | tee "$work/direct3d.txt"
grep -q '^result     lapwing is right' "$work/direct3d.txt"
