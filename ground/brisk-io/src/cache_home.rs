use std::env;
use std::path::PathBuf;

/// The directory of this user's caches: `$XDG_CACHE_HOME`, else `$HOME/.cache`. None if neither is an absolute path, or if
/// `$HOME` does not exist.
pub fn cache_home() -> Option<PathBuf> {
    let absolute = |name| {
        let path = env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    absolute("XDG_CACHE_HOME").or_else(|| {
        let home = absolute("HOME").filter(|home| home.is_dir());
        home.map(|home| home.join(".cache"))
    })
}
