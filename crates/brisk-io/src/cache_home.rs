use std::env;
use std::path::PathBuf;

/// Where this user's programs keep what they can make again: `$XDG_CACHE_HOME`, else `$HOME/.cache`; none if
/// neither is an absolute path. A home that is not there is not one to make.
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
