//! What a user has for a registry: where `docker login`, `podman login` and `skopeo login` put it, or what a helper of theirs says.

use std::env;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use brisk_remote::{Credential, Error, ErrorKind, Result};
use docker_credential::{CredentialRetrievalError, DockerCredential, get_credential_from_reader};

/// What these programs call Docker's own registry.
const DOCKER: &str = "https://index.docker.io/v1/";

/// The most bytes that are read of a file.
const MOST: u64 = 1 << 20;

/// What the user has for a registry. None: nothing. The first file counts that has something.
///
/// # Errors
///
/// `Name`, if a file cannot be read, or its helper fails.
pub fn login(registry: &str) -> Result<Option<Credential>> {
    let server = match registry {
        "docker.io" => DOCKER,
        other => other,
    };
    for path in files() {
        let Ok(file) = File::open(&path) else {
            continue;
        };
        match get_credential_from_reader(BufReader::new(file.take(MOST)), server) {
            Ok(DockerCredential::UsernamePassword(user, secret)) => {
                return Ok(Some(Credential {
                    user: Some(user),
                    secret,
                }));
            }
            Ok(DockerCredential::IdentityToken(secret)) => {
                return Ok(Some(Credential { user: None, secret }));
            }
            Err(CredentialRetrievalError::NoCredentialConfigured) => {}
            // Helpers say so if they have nothing for a server.
            Err(CredentialRetrievalError::HelperFailure { stdout, stderr, .. })
                if [&stdout, &stderr]
                    .iter()
                    .any(|text| text.contains("not found")) => {}
            Err(e) => {
                let text = match e {
                    // It could say anything.
                    CredentialRetrievalError::HelperFailure { helper, .. } => {
                        format!("{helper} fails")
                    }
                    other => other.to_string(),
                };
                let text = format!("{}: what it has for {registry}: {text}", path.display());
                return Err(Error::new(ErrorKind::Name, text));
            }
        }
    }
    Ok(None)
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
