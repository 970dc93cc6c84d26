//! What a user has for a registry or a web server: where `docker login`, `podman login` and `skopeo login` put it, or what a helper of theirs says, and
//! `~/.netrc`.

use std::env;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use brisk_io::open_at_once;
use brisk_remote::{Credential, Error, ErrorKind, Result, netrc_login, store_key};
use docker_credential::{CredentialRetrievalError, DockerCredential, get_credential_from_reader};
use serde_json::Value;

/// What these programs call Docker's own registry.
const DOCKER: &str = "https://index.docker.io/v1/";

/// The most bytes that are read of a file.
const MOST: u64 = 1 << 20;

/// What the user has for a server. None: nothing. For a registry, the first file counts that has something. What a user has for an object
/// store lies elsewhere, and what is for a web server is in `~/.netrc` alone.
///
/// # Errors
///
/// `Name`, if a file cannot be read, or its helper fails.
pub fn login(registry: &str) -> Result<Option<Credential>> {
    if registry.starts_with("s3://") {
        return store_key(registry);
    }
    if registry.contains("://") {
        return Ok(netrc_login(registry));
    }
    let server = match registry {
        "docker.io" => DOCKER,
        other => other,
    };
    for path in files() {
        let failed = |why: String| {
            let text = format!("{}: what it has for {registry}: {why}", path.display());
            Error::new(ErrorKind::Name, text)
        };
        let Some(text) = read(&path).map_err(|e| failed(e.to_string()))? else {
            continue;
        };
        let text = with_plain_helpers(&text, server).map_err(failed)?;
        match get_credential_from_reader(&*text, server) {
            Ok(DockerCredential::UsernamePassword(user, secret)) => {
                return Ok(Some(Credential {
                    user: Some(user),
                    secret,
                    ..Credential::default()
                }));
            }
            Ok(DockerCredential::IdentityToken(secret)) => {
                return Ok(Some(Credential {
                    secret,
                    ..Credential::default()
                }));
            }
            Err(CredentialRetrievalError::NoCredentialConfigured) => {}
            // Helpers say so if they have nothing for a server.
            Err(CredentialRetrievalError::HelperFailure { stdout, stderr, .. })
                if [&stdout, &stderr]
                    .iter()
                    .any(|text| text.contains("not found")) => {}
            Err(e) => {
                return Err(failed(match e {
                    // It could say anything.
                    CredentialRetrievalError::HelperFailure { helper, .. } => {
                        format!("{helper} fails")
                    }
                    other => other.to_string(),
                }));
            }
        }
    }
    Ok(netrc_login(registry))
}

/// What is in a file. None: nothing, or it cannot be opened. Others may have put a pipe there, so this waits for nobody.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let Ok(file) = open_at_once(path) else {
        return Ok(None);
    };
    let mut text = Vec::new();
    file.take(MOST).read_to_end(&mut text)?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// The same text. The helpers that it names for this server are words: with a `/`, one would be a path from the directory that the user
/// is in. An empty word is no helper, as docker has it.
fn with_plain_helpers(text: &[u8], server: &str) -> std::result::Result<Vec<u8>, String> {
    let Ok(mut config) = serde_json::from_slice::<Value>(text) else {
        // The same is found of it again.
        return Ok(text.to_owned());
    };
    let store = config.get("credsStore");
    let own = config
        .get("credHelpers")
        .and_then(|helpers| helpers.get(server));
    for helper in [own, store].into_iter().flatten().filter_map(Value::as_str) {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        if !helper.bytes().all(is_plain) {
            return Err(format!(
                "the helper {helper:?} has other characters than letters, digits and any of . _ -"
            ));
        }
    }
    if store.is_some_and(|store| store == "")
        && let Some(config) = config.as_object_mut()
    {
        config.remove("credsStore");
    }
    Ok(config.to_string().into_bytes())
}

/// The files that may have something, in the order in which they count.
fn files() -> impl Iterator<Item = PathBuf> {
    // An empty one counts as none: what it leads to would be below the directory that the user is in.
    let set = |name: &str| env::var_os(name).filter(|it| !it.is_empty());
    let below = |name: &str, rest: &str| set(name).map(|it| PathBuf::from(it).join(rest));
    let docker = below("DOCKER_CONFIG", "config.json");
    [
        set("REGISTRY_AUTH_FILE").map(PathBuf::from),
        below("XDG_RUNTIME_DIR", "containers/auth.json"),
        below("XDG_CONFIG_HOME", "containers/auth.json"),
        below("HOME", ".config/containers/auth.json"),
        docker.or_else(|| below("HOME", ".docker/config.json")),
    ]
    .into_iter()
    .flatten()
}
