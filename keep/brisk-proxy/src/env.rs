//! `brisk proxy env`: the settings that make a client use the proxy.

use std::io::{self, Write};

use anyhow::Context;
use brisk_terminal::answer::Answer;
use brisk_terminal::proxy_args::{ProxyClient, ProxyEnvArgs};
use brisk_terminal::shell_word::shell_word;
use url::Url;

use crate::discovery::{Surroundings, apt};
use crate::kind::Kind;

/// Prints the settings of a client.
pub fn run(args: &ProxyEnvArgs) -> anyhow::Result<Answer> {
    let url = Url::parse(&args.url).context("--url is no URL")?;
    anyhow::ensure!(
        matches!(url.scheme(), "http" | "https"),
        "--url has the scheme {:?}; allowed are http and https",
        url.scheme()
    );
    let kind = kind_of(args.client);
    let prefix = match &args.prefix {
        Some(prefix) => prefix.trim_matches('/').to_owned(),
        None => kind.name().to_owned(),
    };
    let base = format!("{}/{prefix}", url.as_str().trim_end_matches('/'));
    let base = base.trim_end_matches('/');
    let text = settings(args.client, &url, base)?;
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Answer::Yes)
}

/// What a client asks for.
fn kind_of(client: ProxyClient) -> Kind {
    match client {
        ProxyClient::Pip | ProxyClient::Uv => Kind::Python,
        ProxyClient::Npm => Kind::Npm,
        ProxyClient::Cargo => Kind::Cargo,
        ProxyClient::Go => Kind::Go,
        ProxyClient::Apt => Kind::Apt,
    }
}

/// The settings of a client whose index is at `base`.
fn settings(client: ProxyClient, url: &Url, base: &str) -> anyhow::Result<String> {
    Ok(match client {
        ProxyClient::Pip => {
            let mut lines = format!("export PIP_INDEX_URL={}\n", quoted(&format!("{base}/")));
            // pip mistrusts plain HTTP from anywhere but the loopback.
            let host = url.host_str().unwrap_or_default();
            if url.scheme() == "http" && !is_loopback(host) {
                lines.push_str(&format!("export PIP_TRUSTED_HOST={}\n", quoted(host)));
            }
            lines
        }
        ProxyClient::Uv => format!("export UV_DEFAULT_INDEX={}\n", quoted(&format!("{base}/"))),
        ProxyClient::Npm => {
            format!(
                "export npm_config_registry={}\n",
                quoted(&format!("{base}/"))
            )
        }
        ProxyClient::Go => format!("export GOPROXY={}\n", quoted(base)),
        ProxyClient::Cargo => format!(
            "[source.crates-io]\nreplace-with = \"brisk\"\n\n[source.brisk]\nregistry = \"sparse+{base}/\"\n"
        ),
        ProxyClient::Apt => apt::sources(&Surroundings::real()?, base)?,
    })
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost") || address.parse().is_ok_and(crate::access::is_loopback)
}

fn quoted(text: &str) -> String {
    // Quotes leave UTF-8 as it is.
    shell_word(text.as_ref()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_settings() {
        let of = |client, url: &str| {
            let url = Url::parse(url).unwrap();
            settings(client, &url, &format!("{}x", url.as_str())).unwrap()
        };
        let near = "http://127.0.0.1:7077/";
        let far = "http://build.example:7077/";
        for (client, url, expected) in [
            (
                ProxyClient::Pip,
                near,
                "export PIP_INDEX_URL=http://127.0.0.1:7077/x/\n",
            ),
            (
                ProxyClient::Pip,
                far,
                "export PIP_INDEX_URL=http://build.example:7077/x/\nexport PIP_TRUSTED_HOST=build.example\n",
            ),
            (
                ProxyClient::Uv,
                near,
                "export UV_DEFAULT_INDEX=http://127.0.0.1:7077/x/\n",
            ),
            (
                ProxyClient::Npm,
                near,
                "export npm_config_registry=http://127.0.0.1:7077/x/\n",
            ),
            (
                ProxyClient::Go,
                near,
                "export GOPROXY=http://127.0.0.1:7077/x\n",
            ),
            (
                ProxyClient::Uv,
                "http://[::1]:7077/",
                "export UV_DEFAULT_INDEX='http://[::1]:7077/x/'\n",
            ),
        ] {
            assert_eq!(of(client, url), expected);
        }
        assert_eq!(quoted("a'b"), "'a'\\''b'");
    }
}
