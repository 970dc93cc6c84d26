//! Credentials in `~/.netrc`, as ftp(1) and curl read them.

use std::env;
use std::path::PathBuf;

use crate::protocol::Credential;
use crate::remote_url::host_of;
use crate::settings_file::read;

/// What the file has for a web server (`https://HOST:PORT`) or a registry (`HOST:PORT`). None if it names no user for that host, and
/// for an object store, which has keys.
pub fn netrc_login(server: &str) -> Option<Credential> {
    let authority = match server.split_once("://") {
        Some(("http" | "https", authority)) => authority,
        Some(_) => return None,
        None if server == "docker.io" => "registry-1.docker.io",
        None => server,
    };
    let path = match env::var_os("NETRC") {
        Some(path) => PathBuf::from(path),
        None => {
            // An empty one would lead to the directory that the user is in.
            let home = env::var_os("HOME").filter(|home| !home.is_empty())?;
            PathBuf::from(home).join(".netrc")
        }
    };
    let (login, password) = login(&read(&path).ok()?, host_of(authority))?;
    Some(Credential {
        user: Some(login),
        secret: password,
        ..Credential::default()
    })
}

/// User and password for a host: of its own `machine`, or else of `default`.
fn login(text: &str, host: &str) -> Option<(String, String)> {
    let mut words = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(str::split_whitespace);
    let (mut is_ours, mut login, mut password) = (false, None, None);
    while let Some(word) = words.next() {
        match word {
            "machine" | "default" => {
                if is_ours && login.is_some() {
                    break;
                }
                is_ours = word == "default"
                    || words
                        .next()
                        .is_some_and(|name| name.eq_ignore_ascii_case(host));
            }
            "login" if is_ours => login = words.next(),
            "password" if is_ours => password = words.next(),
            "login" | "password" | "account" => drop(words.next()),
            // A macro goes on up to an empty line, which is lost here. Nothing in it is of use.
            "macdef" => break,
            _ => {}
        }
    }
    Some((login?.to_owned(), password.unwrap_or("").to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_its_own_user() {
        let text = "# machine a login no\nmachine a.example login alice password p1\n  machine b.example\n\tlogin bob\n\tpassword p2\n\
                    default login anonymous password x";
        for (host, found) in [
            ("a.example", ("alice", "p1")),
            ("B.example", ("bob", "p2")),
            ("c.example", ("anonymous", "x")),
        ] {
            let (login, password) = login(text, host).expect("there");
            assert_eq!((&*login, &*password), found, "{host}");
        }
        assert_eq!(login("machine a login x password y", "b"), None);
        assert_eq!(login("machine a password y", "a"), None);
    }
}
