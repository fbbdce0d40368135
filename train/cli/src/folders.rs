//! Where programs of this system keep their files, if the environment says where the user's home is.

use std::env;
use std::path::PathBuf;

/// What can be made again.
pub fn cache() -> Option<PathBuf> {
    let caches = if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else if cfg!(target_vendor = "apple") {
        folder("HOME").map(|home| home.join("Library/Caches"))
    } else {
        folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))
    };
    caches.map(|caches| caches.join("lapwing"))
}

/// What belongs to the user.
pub fn data() -> Option<PathBuf> {
    let data = if cfg!(windows) {
        folder("APPDATA")
    } else if cfg!(target_vendor = "apple") {
        folder("HOME").map(|home| home.join("Library/Application Support"))
    } else {
        folder("XDG_DATA_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/share")))
    };
    data.map(|data| data.join("lapwing"))
}

/// A relative path would be another one from each directory; the XDG specification has it ignored.
fn folder(name: &str) -> Option<PathBuf> {
    let path = env::var_os(name).map(PathBuf::from);
    path.filter(|path| path.is_absolute())
}
