//! The user's cache and data directories, if the environment names them.

use std::env;
use std::path::PathBuf;

/// Returns the directory for files that lapwing can make again.
pub fn cache() -> Option<PathBuf> {
    folder("LOCALAPPDATA", "Library/Caches", "XDG_CACHE_HOME", ".cache")
}

/// Returns the directory for the user's own files.
pub fn data() -> Option<PathBuf> {
    let apple = "Library/Application Support";
    folder("APPDATA", apple, "XDG_DATA_HOME", ".local/share")
}

fn folder(windows: &str, apple: &str, xdg: &str, unix: &str) -> Option<PathBuf> {
    // The XDG specification ignores relative paths.
    let var = |name: &str| {
        let path = env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let folder = if cfg!(windows) {
        var(windows)
    } else if cfg!(target_vendor = "apple") {
        var("HOME").map(|home| home.join(apple))
    } else {
        var(xdg).or_else(|| var("HOME").map(|home| home.join(unix)))
    };
    folder.map(|folder| folder.join("lapwing"))
}
