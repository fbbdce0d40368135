# shellcheck shell=bash
# Sourced by check: Google's software Vulkan driver, SwiftShader, which shares nothing with Mesa's: another compiler, subgroups
# of 4, no f16, 256 threads in a group. It comes out of Debian's chromium-common, of which two files are kept.

# Prints the manifest of the driver, which is fetched first where apt can: that needs neither root nor an installation.
# Fails, saying why, where it cannot.
swiftshader() {
    local folder=target/swiftshader manifest
    manifest=$folder/usr/lib/chromium/vk_swiftshader_icd.json
    if [ -r "$manifest" ] && [ -r "$folder/usr/lib/chromium/libvk_swiftshader.so" ]; then
        echo "$PWD/$manifest"
        return
    fi
    if ! { command -v apt-get && command -v dpkg-deb; } >/dev/null; then
        echo "SwiftShader is fetched with apt-get, which is not here" >&2
        return 1
    fi
    rm -rf "$folder"
    mkdir -p "$folder/package"
    echo "fetching SwiftShader: Debian's package chromium-common, 32 MB" >&2
    if ! (cd "$folder/package" && apt-get download chromium-common >/dev/null 2>log); then
        # Lists that are too old, or none: they can be renewed by root alone.
        if [ "$(id -u)" -ne 0 ] || ! apt-get update >/dev/null ||
            ! (cd "$folder/package" && apt-get download chromium-common >/dev/null 2>log); then
            echo "apt-get download chromium-common failed: $(tail -n 1 "$folder/package/log")" >&2
            return 1
        fi
    fi
    dpkg-deb --fsys-tarfile "$folder"/package/chromium-common_*.deb |
        tar -x -C "$folder" ./usr/lib/chromium/libvk_swiftshader.so ./usr/lib/chromium/vk_swiftshader_icd.json
    rm -rf "$folder/package"
    echo "$PWD/$manifest"
}
