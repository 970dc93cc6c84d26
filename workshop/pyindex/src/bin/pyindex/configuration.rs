//! The indexes that pip and uv are configured with, and how they are asked.

use std::path::PathBuf;

use anyhow::{Context, bail};
use url::Url;

use crate::args::Common;
use crate::pip_settings::PipSettings;
use crate::surroundings::{Setting, Surroundings};
use crate::uv_settings::{UvIndex, UvSettings};

/// What options, variables and files say.
#[derive(Debug)]
pub(crate) struct Configuration {
    /// In the order in which they are asked. None is built in.
    pub(crate) indexes: Vec<ConfiguredIndex>,
    /// Whether the command keyring is asked for passwords.
    pub(crate) keyring: bool,
    pub(crate) proxies: Proxies,
    /// The certificates that are trusted, in place of those of the system: a file, or a directory of files.
    pub(crate) roots: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct ConfiguredIndex {
    /// It ends with a slash, and may have a user and a password.
    pub(crate) url: Url,
    /// A user, and a password if it is known, that count before those of the URL.
    pub(crate) credentials: Option<(String, Option<String>)>,
}

/// Proxies of files. None: those of `HTTP_PROXY` and the like.
#[derive(Debug, Default)]
pub(crate) struct Proxies {
    pub(crate) http: Option<Setting>,
    pub(crate) https: Option<Setting>,
    /// Hosts that are asked without.
    pub(crate) without: Vec<String>,
}

impl Configuration {
    pub(crate) fn of(args: &Common, surroundings: &Surroundings) -> anyhow::Result<Self> {
        let pip = PipSettings::of(surroundings)?;
        let uv = UvSettings::of(surroundings)?;
        Ok(Self {
            indexes: indexes(args, surroundings, &pip, &uv)?,
            keyring: args.keyring || has_keyring(&pip, &uv)?,
            proxies: proxies(&pip, &uv),
            roots: roots(surroundings, &pip),
        })
    }
}

/// An index, and the credentials that variables have for it.
struct Named {
    url: Setting,
    credentials: Option<(String, Option<String>)>,
}

impl From<Setting> for Named {
    fn from(url: Setting) -> Self {
        Self {
            url,
            credentials: None,
        }
    }
}

/// The extra ones first: that is where a project is looked for before. Options count before variables, variables before files,
/// and of two that are equal pip before uv. As in pip and uv, each has its extra indexes, and there is one default index.
fn indexes(
    args: &Common,
    surroundings: &Surroundings,
    pip: &PipSettings,
    uv: &UvSettings,
) -> anyhow::Result<Vec<ConfiguredIndex>> {
    let of_uv = |index: &UvIndex| -> anyhow::Result<Named> {
        Ok(Named {
            url: index.url.clone(),
            credentials: credentials(index, surroundings)?,
        })
    };
    let of_pip = |setting: Option<&Setting>| -> Vec<Named> {
        let texts = |setting: &Setting| -> Vec<Named> {
            let urls = setting.value.split_whitespace();
            urls.map(|url| Setting::new(url, &setting.source).into())
                .collect()
        };
        setting.map(texts).unwrap_or_default()
    };
    let no_index = pip.no_index()?;
    let of_pip = |setting: Option<&Setting>| of_pip(setting.filter(|_| no_index.is_none()));

    let extras = args.extra_index_url.iter();
    let mut all: Vec<Named> = extras
        .map(|url| Setting::new(url, "--extra-index-url").into())
        .collect();
    let of_variable = pip.variable("extra-index-url");
    all.extend(of_pip(of_variable));
    for index in &uv.of_variables {
        all.push(of_uv(index)?);
    }
    if of_variable.is_none() {
        all.extend(of_pip(pip.file("extra-index-url")));
    }
    for index in &uv.of_files {
        all.push(of_uv(index)?);
    }

    let uv_default = |wanted: bool| -> anyhow::Result<Option<Named>> {
        let default = uv.default.as_ref();
        let default = default.filter(|(_, is_of_variable)| *is_of_variable == wanted);
        default.map(|(index, _)| of_uv(index)).transpose()
    };
    let option = args.index_url.as_ref();
    let default = match option.map(|url| Setting::new(url, "--index-url").into()) {
        Some(named) => Some(named),
        None => {
            let mut defaults = of_pip(pip.variable("index-url"));
            defaults.extend(uv_default(true)?);
            defaults.extend(of_pip(pip.file("index-url")));
            defaults.extend(uv_default(false)?);
            defaults.into_iter().next()
        }
    };
    all.extend(default);
    if all.is_empty() {
        if let Some(Setting { source, .. }) = no_index {
            bail!("no index is left: {source} says no-index; name one with --index-url URL");
        }
        bail!(
            "no index is configured; name one with --index-url URL, or in PIP_INDEX_URL, pip.conf, UV_DEFAULT_INDEX or uv.toml"
        );
    }
    let mut indexes: Vec<ConfiguredIndex> = Vec::new();
    for Named { url, credentials } in all {
        let index = ConfiguredIndex {
            url: index_url(&url)?,
            credentials,
        };
        if !indexes.iter().any(|known| known.url == index.url) {
            indexes.push(index);
        }
    }
    Ok(indexes)
}

fn index_url(setting: &Setting) -> anyhow::Result<Url> {
    let parsed = Url::parse(setting.value.trim())
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    // The URL may have a password, so it is not shown.
    let mut url = parsed.with_context(|| {
        let source = &setting.source;
        format!("{source} names an index that is no URL of http or https; correct it there")
    })?;
    url.set_query(None);
    url.set_fragment(None);
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

/// What `UV_INDEX_NAME_USERNAME` and `UV_INDEX_NAME_PASSWORD` say.
fn credentials(
    index: &UvIndex,
    surroundings: &Surroundings,
) -> anyhow::Result<Option<(String, Option<String>)>> {
    let Some(name) = index.variable_name() else {
        return Ok(None);
    };
    let user = surroundings.variable(&format!("UV_INDEX_{name}_USERNAME"))?;
    let password = surroundings.variable(&format!("UV_INDEX_{name}_PASSWORD"))?;
    if user.is_none() && password.is_none() {
        return Ok(None);
    }
    Ok(Some((user.unwrap_or_default(), password)))
}

/// The command stands for the module of pip's `import`, too: it asks the same keyring. pip's `auto` asks only after a 401.
fn has_keyring(pip: &PipSettings, uv: &UvSettings) -> anyhow::Result<bool> {
    let mut has = false;
    let providers = [pip.get("keyring-provider"), uv.keyring_provider.as_ref()];
    for Setting { value, source } in providers.into_iter().flatten() {
        has |= match value.trim() {
            "subprocess" | "import" => true,
            "auto" | "disabled" => false,
            other => bail!(
                "the keyring provider of {source} is {other:?}, allowed are auto, disabled, import and subprocess; correct it there"
            ),
        };
    }
    Ok(has)
}

fn proxies(pip: &PipSettings, uv: &UvSettings) -> Proxies {
    if let Some(proxy) = pip.get("proxy") {
        // pip takes it for all hosts.
        return Proxies {
            http: Some(proxy.clone()),
            https: Some(proxy.clone()),
            without: Vec::new(),
        };
    }
    Proxies {
        http: uv.http_proxy.clone(),
        https: uv.https_proxy.clone(),
        without: uv.no_proxy.clone(),
    }
}

fn roots(surroundings: &Surroundings, pip: &PipSettings) -> Option<PathBuf> {
    let of_pip = pip.get("cert").map(|cert| cert.value.trim().into());
    let of_pip = of_pip.map(|cert: PathBuf| surroundings.absolute(&cert));
    // What pip's library for HTTP takes.
    of_pip.or_else(|| {
        ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"]
            .into_iter()
            .find_map(|name| surroundings.path(name))
    })
}

/// Where tables are stored if nobody says.
pub(crate) fn cache_directory(surroundings: &Surroundings) -> anyhow::Result<PathBuf> {
    let home = surroundings.xdg("XDG_CACHE_HOME");
    let home = home.or_else(|| surroundings.home().map(|home| home.join(".cache")));
    let Some(home) = home else {
        bail!(
            "neither XDG_CACHE_HOME nor HOME is an absolute path; say with --cache where to store what comes"
        );
    };
    Ok(home.join("brisk/pyindex"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;
    use crate::args::Args;
    use crate::credentials::authorization;

    /// What a configuration is read from. ROOT stands for a directory of the test: files of the system are below it, the home
    /// is `ROOT/home`, and the working directory is `ROOT/home/project/sub`.
    #[derive(Default)]
    struct Given {
        files: &'static [(&'static str, &'static str)],
        variables: &'static [(&'static str, &'static str)],
        args: &'static [&'static str],
    }

    impl Given {
        fn read(
            &self,
        ) -> (
            anyhow::Result<Configuration>,
            Option<PathBuf>,
            tempfile::TempDir,
        ) {
            let root = tempfile::tempdir().unwrap();
            let text = |text: &str| text.replace("ROOT", root.path().to_str().unwrap());
            let directory = root.path().join("home/project/sub");
            fs::create_dir_all(&directory).unwrap();
            for (path, content) in self.files {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text(content)).unwrap();
            }
            let variables = [("HOME", "ROOT/home")].iter().chain(self.variables);
            let variables = variables.map(|(name, value)| (*name, text(value).into()));
            let surroundings = Surroundings::of_test(root.path(), &directory, variables.collect());
            let args = ["pyindex", "versions", "some"].iter().chain(self.args);
            let args = Args::try_parse_from(args).unwrap();
            let configuration = Configuration::of(&args.common, &surroundings);
            (configuration, surroundings.netrc(), root)
        }

        /// The indexes, and behind a blank what is sent to each as user and password.
        fn indexes(&self) -> Vec<String> {
            let (configuration, netrc, _root) = self.read();
            let configuration = configuration.unwrap();
            let said = configuration.indexes.into_iter().map(|mut index| {
                let value = authorization(&mut index, netrc.as_deref(), false).unwrap();
                let sent = value.map_or(String::new(), |value| {
                    let value = value.to_str().unwrap().strip_prefix("Basic ").unwrap();
                    let pair = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, value);
                    format!(" {}", String::from_utf8(pair.unwrap()).unwrap())
                });
                format!("{}{sent}", index.url)
            });
            said.collect()
        }

        fn error(&self) -> String {
            let (configuration, _, root) = self.read();
            let said = format!("{:#}", configuration.unwrap_err());
            said.replace(root.path().to_str().unwrap(), "ROOT")
        }
    }

    fn check(cases: &[(Given, &[&str])]) {
        for (number, (given, expected)) in cases.iter().enumerate() {
            assert_eq!(given.indexes(), *expected, "case {number}");
        }
    }

    const GLOBAL: &str = "[global]\nindex-url = https://global.example/\n";
    const USER: &str = "[global]\nindex-url = https://user.example/\n";

    #[test]
    fn the_files_and_variables_of_pip_name_indexes() {
        check(&[
            // The system's files, the user's, the Python's, and the named one: the last one counts that has a setting.
            (
                Given {
                    files: &[("etc/pip.conf", GLOBAL)],
                    ..Given::default()
                },
                &["https://global.example/"],
            ),
            (
                Given {
                    files: &[("etc/xdg/pip/pip.conf", GLOBAL)],
                    ..Given::default()
                },
                &["https://global.example/"],
            ),
            (
                Given {
                    files: &[("one/pip/pip.conf", GLOBAL), ("etc/xdg/pip/pip.conf", USER)],
                    variables: &[("XDG_CONFIG_DIRS", "ROOT/none:ROOT/one")],
                    ..Given::default()
                },
                &["https://global.example/"],
            ),
            (
                Given {
                    files: &[
                        ("etc/pip.conf", GLOBAL),
                        (
                            "home/.pip/pip.conf",
                            "[global]\nindex-url = https://old.example/\n",
                        ),
                        ("home/.config/pip/pip.conf", USER),
                    ],
                    ..Given::default()
                },
                &["https://user.example/"],
            ),
            (
                Given {
                    files: &[
                        ("home/.config/pip/pip.conf", GLOBAL),
                        ("xdg/pip/pip.conf", USER),
                    ],
                    variables: &[("XDG_CONFIG_HOME", "ROOT/xdg")],
                    ..Given::default()
                },
                &["https://user.example/"],
            ),
            (
                Given {
                    files: &[
                        ("home/.config/pip/pip.conf", USER),
                        ("venv/bin/python3", ""),
                        ("venv/pyvenv.cfg", ""),
                        (
                            "venv/pip.conf",
                            "[global]\nindex-url = https://venv.example/\n",
                        ),
                    ],
                    variables: &[("PATH", "ROOT/none:ROOT/venv/bin")],
                    ..Given::default()
                },
                &["https://venv.example/"],
            ),
            (
                Given {
                    files: &[
                        (
                            "etc/pip.conf",
                            "[global]\nextra-index-url = https://more.example/\n",
                        ),
                        (
                            "home/.config/pip/pip.conf",
                            "[global]\nextra-index-url = https://hidden.example/\n",
                        ),
                        ("named.conf", USER),
                    ],
                    variables: &[("PIP_CONFIG_FILE", "ROOT/named.conf")],
                    ..Given::default()
                },
                // The user's files do not count beside it, and those of the system do.
                &["https://more.example/", "https://user.example/"],
            ),
            (
                Given {
                    files: &[("home/.config/pip/pip.conf", USER)],
                    variables: &[("PIP_CONFIG_FILE", "ROOT/none.conf")],
                    ..Given::default()
                },
                &["https://user.example/"],
            ),
            (
                Given {
                    files: &[("home/.config/pip/pip.conf", USER)],
                    variables: &[
                        ("PIP_CONFIG_FILE", "/dev/null"),
                        ("PIP_INDEX_URL", "https://variable.example"),
                    ],
                    ..Given::default()
                },
                &["https://variable.example/"],
            ),
            // All files are one before sections are looked at.
            (
                Given {
                    files: &[
                        (
                            "etc/pip.conf",
                            "[install]\nindex-url = https://install.example/\n",
                        ),
                        ("home/.config/pip/pip.conf", USER),
                    ],
                    ..Given::default()
                },
                &["https://install.example/"],
            ),
            // What is empty does not count, in files and in variables.
            (
                Given {
                    files: &[(
                        "etc/pip.conf",
                        "[install]\nindex-url =\n[global]\nindex-url = https://a.example/\nextra-index-url =\n  https://b.example/\n  https://c.example/\n",
                    )],
                    variables: &[("PIP_EXTRA_INDEX_URL", ""), ("PIP_INDEX_URL", " ")],
                    ..Given::default()
                },
                &[
                    "https://b.example/",
                    "https://c.example/",
                    "https://a.example/",
                ],
            ),
            (
                Given {
                    files: &[(
                        "etc/pip.conf",
                        "[global]\nextra-index-url = https://b.example/\n",
                    )],
                    variables: &[
                        (
                            "PIP_EXTRA_INDEX_URL",
                            "https://d.example/ https://e.example/",
                        ),
                        ("PIP_INDEX_URL", "https://me:word@a.example/simple"),
                    ],
                    ..Given::default()
                },
                &[
                    "https://d.example/",
                    "https://e.example/",
                    "https://a.example/simple/ me:word",
                ],
            ),
            // Options add to what is configured, and replace the default.
            (
                Given {
                    files: &[(
                        "etc/pip.conf",
                        "[global]\nindex-url = https://a.example/\nextra-index-url = https://b.example/\n",
                    )],
                    args: &["--extra-index-url", "https://option.example/"],
                    ..Given::default()
                },
                &[
                    "https://option.example/",
                    "https://b.example/",
                    "https://a.example/",
                ],
            ),
            (
                Given {
                    files: &[(
                        "etc/pip.conf",
                        "[global]\nindex-url = https://a.example/\nextra-index-url = https://b.example/\n",
                    )],
                    args: &["--index-url", "https://option.example/?a#b"],
                    ..Given::default()
                },
                &["https://b.example/", "https://option.example/"],
            ),
            // Without indexes, only those of uv and of options are left.
            (
                Given {
                    files: &[("etc/pip.conf", GLOBAL)],
                    variables: &[
                        ("PIP_NO_INDEX", "yes"),
                        ("PIP_EXTRA_INDEX_URL", "https://b.example/"),
                        ("UV_INDEX", "https://uv.example/"),
                    ],
                    ..Given::default()
                },
                &["https://uv.example/"],
            ),
            (
                Given {
                    files: &[(
                        "etc/pip.conf",
                        "[global]\nno-index = false\nindex-url = https://a.example/",
                    )],
                    ..Given::default()
                },
                &["https://a.example/"],
            ),
        ]);
    }

    #[test]
    fn the_files_and_variables_of_uv_name_indexes() {
        check(&[
            // The project's file, the user's and the system's are joined, in this order.
            (
                Given {
                    files: &[
                        (
                            "home/project/pyproject.toml",
                            "[[tool.uv.index]]\nurl = 'https://project.example'\n[[tool.uv.index]]\nurl = 'https://default.example'\ndefault = true\n",
                        ),
                        (
                            "home/project/sub/pyproject.toml",
                            "[project]\nname = 'some'\n",
                        ),
                        (
                            "home/.config/uv/uv.toml",
                            "index-url = 'https://other.example/'\nextra-index-url = ['https://extra.example/']\n[[index]]\nurl = 'https://user.example/'\n",
                        ),
                        (
                            "etc/uv/uv.toml",
                            "[[index]]\nurl = 'https://system.example/'\n",
                        ),
                        (
                            "etc/xdg/uv/uv.toml",
                            "[[index]]\nurl = 'https://first-system.example/'\n",
                        ),
                    ],
                    ..Given::default()
                },
                &[
                    "https://project.example/",
                    "https://user.example/",
                    "https://first-system.example/",
                    "https://extra.example/",
                    "https://default.example/",
                ],
            ),
            (
                Given {
                    files: &[
                        (
                            "home/project/uv.toml",
                            "index-url = 'https://above.example/'\n",
                        ),
                        (
                            "home/project/sub/uv.toml",
                            "index-url = 'https://here.example/'\n",
                        ),
                        (
                            "home/project/sub/pyproject.toml",
                            "[tool.uv]\nindex-url = 'https://hidden.example/'\n",
                        ),
                    ],
                    ..Given::default()
                },
                &["https://here.example/"],
            ),
            (
                Given {
                    files: &[
                        ("home/project/sub/pyproject.toml", "no toml"),
                        ("etc/uv/uv.toml", "index-url = 'https://system.example/'\n"),
                    ],
                    ..Given::default()
                },
                &["https://system.example/"],
            ),
            // A file that is named stands for all others.
            (
                Given {
                    files: &[
                        ("named.toml", "index-url = 'https://named.example/'\n"),
                        (
                            "home/project/uv.toml",
                            "extra-index-url = ['https://hidden.example/']\n",
                        ),
                        (
                            "etc/uv/uv.toml",
                            "extra-index-url = ['https://hidden.example/']\n",
                        ),
                    ],
                    variables: &[("UV_CONFIG_FILE", "ROOT/named.toml"), ("UV_NO_CONFIG", "1")],
                    ..Given::default()
                },
                &["https://named.example/"],
            ),
            (
                Given {
                    files: &[("etc/uv/uv.toml", "index-url = 'https://system.example/'\n")],
                    variables: &[("UV_NO_CONFIG", "0"), ("UV_NO_SYSTEM_CONFIG", "off")],
                    ..Given::default()
                },
                &["https://system.example/"],
            ),
            (
                Given {
                    files: &[(
                        "home/.config/uv/uv.toml",
                        "index-url = 'https://user.example/'\n",
                    )],
                    variables: &[
                        ("UV_NO_CONFIG", "true"),
                        ("UV_INDEX_URL", "https://variable.example/"),
                    ],
                    ..Given::default()
                },
                &["https://variable.example/"],
            ),
            (
                Given {
                    files: &[
                        (
                            "etc/uv/uv.toml",
                            "extra-index-url = ['https://hidden.example/']\n",
                        ),
                        (
                            "home/.config/uv/uv.toml",
                            "index-url = 'https://user.example/'\n",
                        ),
                    ],
                    variables: &[("UV_NO_SYSTEM_CONFIG", "1")],
                    ..Given::default()
                },
                &["https://user.example/"],
            ),
            // Those that have to be asked for by name, and lists of files, are not asked.
            (
                Given {
                    files: &[(
                        "home/project/uv.toml",
                        "[[index]]\nurl = 'https://explicit.example/'\nexplicit = true\n[[index]]\nurl = '/wheels'\nformat = 'flat'\n[[index]]\nurl = 'https://a.example/'\n",
                    )],
                    ..Given::default()
                },
                &["https://a.example/"],
            ),
            (
                Given {
                    files: &[(
                        "home/project/uv.toml",
                        "index-url = 'https://other.example/'\n[[index]]\nurl = 'https://explicit.example/'\nexplicit = true\ndefault = true\n[[index]]\nurl = 'https://a.example/'\n",
                    )],
                    ..Given::default()
                },
                &["https://a.example/"],
            ),
            // What is for pip's interface counts before the rest.
            (
                Given {
                    files: &[(
                        "etc/uv/uv.toml",
                        "index-url = 'https://top.example/'\nextra-index-url = ['https://b.example/']\n[pip]\nindex-url = 'https://pip.example/'\nextra-index-url = ['https://c.example/']\n",
                    )],
                    ..Given::default()
                },
                &[
                    "https://c.example/",
                    "https://b.example/",
                    "https://pip.example/",
                ],
            ),
            (
                Given {
                    files: &[(
                        "etc/uv/uv.toml",
                        "no-index = false\n[pip]\nno-index = true\nindex-url = 'https://pip.example/'\n",
                    )],
                    variables: &[("PIP_INDEX_URL", "https://a.example/")],
                    ..Given::default()
                },
                &["https://a.example/"],
            ),
            // Variables count before files, and the first default counts.
            (
                Given {
                    files: &[(
                        "etc/uv/uv.toml",
                        "[[index]]\nurl = 'https://file.example/'\ndefault = true\n",
                    )],
                    variables: &[
                        ("UV_DEFAULT_INDEX", "main=https://default.example/"),
                        ("UV_INDEX_URL", "https://old.example/"),
                        (
                            "UV_INDEX",
                            "https://a.example/ own=https://b.example/simple?c=d",
                        ),
                        ("UV_EXTRA_INDEX_URL", "https://c.example/"),
                    ],
                    ..Given::default()
                },
                &[
                    "https://a.example/",
                    "https://b.example/simple/",
                    "https://c.example/",
                    "https://default.example/",
                ],
            ),
            // Of two with one name the first counts, and a variable may say the name alone.
            (
                Given {
                    files: &[(
                        "etc/uv/uv.toml",
                        "[[index]]\nname = 'a'\nurl = 'https://a.example/'\n[[index]]\nname = 'b'\nurl = 'https://b.example/'\n",
                    )],
                    variables: &[
                        ("UV_INDEX", "a=https://mine.example/"),
                        ("UV_DEFAULT_INDEX", "b"),
                    ],
                    ..Given::default()
                },
                &["https://mine.example/", "https://b.example/"],
            ),
            // pip counts before uv where both are configured in one way.
            (
                Given {
                    files: &[
                        (
                            "etc/pip.conf",
                            "[global]\nindex-url = https://pip.example/\nextra-index-url = https://a.example/\n",
                        ),
                        (
                            "etc/uv/uv.toml",
                            "index-url = 'https://uv.example/'\nextra-index-url = ['https://b.example/', 'https://a.example']\n",
                        ),
                    ],
                    ..Given::default()
                },
                &[
                    "https://a.example/",
                    "https://b.example/",
                    "https://pip.example/",
                ],
            ),
            (
                Given {
                    files: &[("etc/pip.conf", GLOBAL)],
                    variables: &[("UV_DEFAULT_INDEX", "https://uv.example/")],
                    ..Given::default()
                },
                &["https://uv.example/"],
            ),
        ]);
    }

    #[test]
    fn each_index_gets_its_own_credentials() {
        check(&[
            (
                Given {
                    files: &[(
                        "etc/uv/uv.toml",
                        "[[index]]\nname = 'my-own.1'\nurl = 'https://me:url@a.example/'\n[[index]]\nname = 'other'\nurl = 'https://b.example/'\n",
                    )],
                    variables: &[
                        ("UV_INDEX_MY_OWN_1_USERNAME", "me"),
                        ("UV_INDEX_MY_OWN_1_PASSWORD", "variable"),
                        ("UV_INDEX", "third=https://c.example/"),
                        ("UV_INDEX_THIRD_PASSWORD", "token"),
                        ("UV_INDEX_OTHER_USERNAME", "half"),
                    ],
                    ..Given::default()
                },
                &[
                    "https://c.example/ :token",
                    "https://a.example/ me:variable",
                    "https://b.example/ half:",
                ],
            ),
            (
                Given {
                    files: &[(
                        "home/.netrc",
                        "machine a.example login me password netrc\nmachine b.example login you password netrc\n",
                    )],
                    variables: &[
                        ("PIP_INDEX_URL", "https://a.example/"),
                        (
                            "PIP_EXTRA_INDEX_URL",
                            "https://other@b.example/ https://me:url@a.example/x https://c.example/",
                        ),
                    ],
                    ..Given::default()
                },
                &[
                    "https://b.example/ other:",
                    "https://a.example/x/ me:url",
                    "https://c.example/",
                    "https://a.example/ me:netrc",
                ],
            ),
            (
                Given {
                    files: &[
                        (
                            "home/.netrc",
                            "machine a.example login me password hidden\n",
                        ),
                        ("other", "machine a.example login me password named\n"),
                    ],
                    variables: &[
                        ("NETRC", "ROOT/other"),
                        ("UV_INDEX_URL", "https://me@a.example/"),
                    ],
                    ..Given::default()
                },
                &["https://a.example/ me:named"],
            ),
        ]);
    }

    #[test]
    fn keyrings_proxies_and_certificates_are_configured() {
        const INDEX: (&str, &str) = ("PIP_INDEX_URL", "https://a.example/");
        const BUNDLE: (&str, &str) = ("REQUESTS_CA_BUNDLE", "/bundle.pem");
        const CONF: (&str, &str) = ("etc/pip.conf", "[global]\ncert = /conf.pem");
        let of = |files, variables| {
            let given = Given {
                files,
                variables,
                ..Given::default()
            };
            let (configuration, _, root) = given.read();
            (configuration.unwrap(), root)
        };
        for (files, variables, keyring) in [
            (&[][..], &[INDEX][..], false),
            (&[], &[INDEX, ("PIP_KEYRING_PROVIDER", "import")], true),
            (&[], &[INDEX, ("UV_KEYRING_PROVIDER", "subprocess")], true),
            (
                &[],
                &[
                    INDEX,
                    ("PIP_KEYRING_PROVIDER", "auto"),
                    ("UV_KEYRING_PROVIDER", "disabled"),
                ],
                false,
            ),
            (
                &[("etc/pip.conf", "[global]\nkeyring-provider = subprocess")],
                &[INDEX],
                true,
            ),
            (
                &[("etc/uv/uv.toml", "[pip]\nkeyring-provider = 'subprocess'")],
                &[INDEX],
                true,
            ),
            (
                &[("etc/uv/uv.toml", "keyring-provider = 'subprocess'")],
                &[INDEX, ("UV_KEYRING_PROVIDER", "disabled")],
                false,
            ),
        ] {
            assert_eq!(
                of(files, variables).0.keyring,
                keyring,
                "{files:?} {variables:?}"
            );
        }

        let value =
            |setting: &Option<Setting>| setting.as_ref().map(|setting| setting.value.clone());
        for (files, variables, http, https, without) in [
            (&[][..], &[INDEX][..], None, None, &[][..]),
            (
                &[
                    ("etc/pip.conf", "[global]\nproxy = http://a.example:1"),
                    ("etc/uv/uv.toml", "http-proxy = 'http://b.example'"),
                ],
                &[INDEX],
                Some("http://a.example:1"),
                Some("http://a.example:1"),
                &[],
            ),
            (
                &[("etc/pip.conf", "[global]\nproxy = http://a.example:1")],
                &[INDEX, ("PIP_PROXY", "http://c.example")],
                Some("http://c.example"),
                Some("http://c.example"),
                &[],
            ),
            (
                &[(
                    "etc/uv/uv.toml",
                    "https-proxy = 'http://b.example'\nno-proxy = ['x.example', '10.0.0.0/8']",
                )],
                &[INDEX],
                None,
                Some("http://b.example"),
                &["x.example", "10.0.0.0/8"],
            ),
        ] {
            let proxies = of(files, variables).0.proxies;
            assert_eq!(value(&proxies.http).as_deref(), http, "{files:?}");
            assert_eq!(value(&proxies.https).as_deref(), https, "{files:?}");
            assert_eq!(proxies.without, without, "{files:?}");
        }

        for (files, variables, roots) in [
            (&[][..], &[INDEX][..], None),
            (
                &[],
                &[INDEX, ("CURL_CA_BUNDLE", "/curl.pem")],
                Some("/curl.pem"),
            ),
            (
                &[],
                &[INDEX, BUNDLE, ("CURL_CA_BUNDLE", "/curl.pem")],
                Some("/bundle.pem"),
            ),
            (&[CONF], &[INDEX, BUNDLE], Some("/conf.pem")),
            (
                &[CONF],
                &[INDEX, BUNDLE, ("PIP_CERT", "sub.pem")],
                Some("ROOT/home/project/sub/sub.pem"),
            ),
        ] {
            let (configuration, root) = of(files, variables);
            let expected =
                roots.map(|roots: &str| roots.replace("ROOT", root.path().to_str().unwrap()));
            assert_eq!(
                configuration.roots,
                expected.map(PathBuf::from),
                "{variables:?}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (files, variables, said) in [
            (
                &[][..],
                &[][..],
                "no index is configured; name one with --index-url URL, or in PIP_INDEX_URL, pip.conf, UV_DEFAULT_INDEX or uv.toml",
            ),
            (
                &[(
                    "etc/pip.conf",
                    "[global]\nno-index = 1\nindex-url = https://a.example/\n",
                )],
                &[],
                "no index is left: ROOT/etc/pip.conf says no-index; name one with --index-url URL",
            ),
            (
                &[],
                &[("UV_INDEX", "file:///a")],
                "UV_INDEX names an index that is no URL of http or https; correct it there",
            ),
            (
                &[],
                &[("PIP_EXTRA_INDEX_URL", "secret.example")],
                "PIP_EXTRA_INDEX_URL names an index that is no URL of http or https; correct it there",
            ),
            (
                &[],
                &[("PIP_NO_INDEX", "perhaps")],
                "no-index of PIP_NO_INDEX is \"perhaps\", allowed are true and false; correct it there",
            ),
            (
                &[("etc/uv/uv.toml", "no-index = 'yes'")],
                &[],
                "no-index of ROOT/etc/uv/uv.toml is of the type string, allowed are true and false; correct it there",
            ),
            (
                &[],
                &[("UV_NO_CONFIG", "maybe")],
                "UV_NO_CONFIG is \"maybe\", allowed are true and false; correct it there",
            ),
            (
                &[],
                &[("UV_CONFIG_FILE", "ROOT/none.toml")],
                "UV_CONFIG_FILE: ROOT/none.toml: No such file or directory (os error 2)",
            ),
            (
                &[],
                &[
                    ("PIP_INDEX_URL", "https://a.example/"),
                    ("UV_KEYRING_PROVIDER", "none"),
                ],
                "the keyring provider of UV_KEYRING_PROVIDER is \"none\", allowed are auto, disabled, import and subprocess; correct it there",
            ),
        ] {
            let given = Given {
                files,
                variables,
                ..Given::default()
            };
            assert_eq!(given.error(), said);
        }
    }
}
