use std::env;
use std::path::PathBuf;

/// Where this user's programs keep what they can make again: `$XDG_CACHE_HOME`, else `~/.cache`; none if
/// neither variable is an absolute path.
pub(crate) fn cache_home() -> Option<PathBuf> {
    let absolute = |name| {
        let path = env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
}
