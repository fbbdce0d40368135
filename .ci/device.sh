# shellcheck shell=bash
# Sourced by quickstart and check: makes sure that this machine can build and run lapwing.
# Needed are cargo, a C linker (cargo links through cc) and a Vulkan device: a GPU with its driver, or Mesa's
# software driver. What is missing is installed with apt-get where that is allowed, and named with the exact
# command where it is not. Quick and silent when all is there. Other systems than Linux bring their own.

# Prints the driver manifests that the Vulkan loader would read.
vulkan_manifests() {
    local chosen=${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}
    if [ -n "$chosen" ]; then
        tr ':' '\n' <<<"$chosen"
        return
    fi
    local folder
    for folder in /usr/share /usr/local/share /etc "${XDG_DATA_HOME:-$HOME/.local/share}"; do
        ls "$folder"/vulkan/icd.d/*.json 2>/dev/null || true
    done
}

# Succeeds if the dynamic linker knows the library, which is a path or a plain name.
library_exists() {
    case $1 in
    */*) [ -e "$1" ] ;;
    # A here-string, not a pipe: grep -q would leave ldconfig with a broken pipe, which pipefail reports.
    *) grep -qF "$1" <<<"$(PATH="$PATH:/usr/sbin:/sbin" ldconfig -p 2>/dev/null)" ;;
    esac
}

# Succeeds if a GPU's device file is here (DRM, NVIDIA's own, or WSL's). Without one its driver finds nothing.
gpu_exists() {
    local file
    for file in /dev/dri/renderD* /dev/nvidia[0-9]* /dev/dxg; do
        [ -e "$file" ] && return
    done
    return 1
}

# Succeeds if Vulkan will find a device: the loader, and a driver that is whole and has something to drive.
vulkan_exists() {
    library_exists libvulkan.so.1 || return 1
    local manifest library
    while read -r manifest; do
        [ -r "$manifest" ] || continue
        library=$(sed -n 's/.*"library_path" *: *"\([^"]*\)".*/\1/p' "$manifest" | head -n 1)
        # A path without a leading slash is relative to its manifest.
        case $library in
        /*) ;;
        */*) library=$(dirname "$manifest")/$library ;;
        esac
        library_exists "$library" || continue
        case $library in
        *lvp*) return ;; # Mesa's lavapipe runs on the processor
        *) if gpu_exists; then return; fi ;;
        esac
    done < <(vulkan_manifests)
    return 1
}

# Installs these Debian packages, or prints the command that does and fails.
install_packages() {
    local command="apt-get update && apt-get install -y --no-install-recommends $*"
    if ! command -v apt-get >/dev/null; then
        {
            echo "missing, and there is no apt-get here to install it with: $*"
            echo "Those are Debian's names. Install what your system calls them, then run this again:"
            echo "  Fedora: sudo dnf install vulkan-loader mesa-vulkan-drivers gcc"
            echo "  Arch:   sudo pacman -S vulkan-icd-loader vulkan-swrast gcc"
            echo "If all is there in a place that was not looked at: cargo run --release -p lapwing -- train"
        } >&2
        return 1
    fi
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! { command -v sudo && sudo -n true; } >/dev/null 2>&1; then
            {
                echo "missing: $*"
                echo "Installing needs root, which this script does not have. Run this once, then run this again:"
                echo "  sudo sh -c '$command'"
            } >&2
            return 1
        fi
        as_root=(sudo -n)
    fi
    echo "installing: $*"
    if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c "$command" >/dev/null; then
        echo "installing failed. To see why, run: sudo sh -c '$command'" >&2
        return 1
    fi
}

# Checks that everything is installed; otherwise fails and prints the fix.
prepare_machine() {
    # A shell that was open when Rust was installed does not have cargo on its path yet.
    command -v cargo >/dev/null || PATH="$HOME/.cargo/bin:$PATH"
    if ! command -v cargo >/dev/null; then
        echo "cargo is missing: install Rust from https://rustup.rs, then run this again" >&2
        return 1
    fi
    [ "$(uname -s)" = Linux ] || return 0
    local missing=()
    command -v cc >/dev/null || missing+=(gcc libc6-dev)
    vulkan_exists || missing+=(libvulkan1 mesa-vulkan-drivers)
    [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
}
