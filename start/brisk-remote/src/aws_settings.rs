//! What the user has set for object stores, where Amazon's programs look for it: the environment, `~/.aws/config` and
//! `~/.aws/credentials`.

use std::collections::HashMap;
use std::env;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use configparser::ini::Ini;
use serde::Deserialize;

use crate::error::{Error, ErrorKind, Result};
use crate::object_name::{ObjectName, to_endpoint, with_bucket};
use crate::protocol::Credential;
use crate::settings_file::read;

/// The settings of the profile that counts.
struct Settings {
    profile: String,
    values: HashMap<String, String>,
}

/// What a program prints that has the keys.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
}

/// Where the user's object store is, for a bucket. None: it is Amazon's.
///
/// # Errors
///
/// `Name`, if a file cannot be read, or what it says is no URL.
pub(crate) fn endpoint(bucket: &str) -> Result<Option<String>> {
    Settings::read()?.endpoint(bucket)
}

/// The key that the user has for what [`ObjectName::store`](crate::ObjectName::store) names. None: nothing. Keys are for the store that the
/// settings name, and for no other that a URL does.
///
/// # Errors
///
/// `Name`, if a file cannot be read, or a program that has the keys fails.
pub fn store_key(store: &str) -> Result<Option<Credential>> {
    // A store is named as its objects are.
    let object = match store.split_once('?') {
        Some((bucket, query)) => format!("{bucket}/-?{query}"),
        None => format!("{store}/-"),
    };
    let name = object.strip_prefix("s3://").unwrap_or("");
    let name = ObjectName::parse(name).map_err(|why| wrong(format!("{store}: {why}")))?;
    let settings = Settings::read()?;
    match settings.endpoint(name.bucket())?.as_deref() == name.endpoint() {
        true => settings.key(),
        false => Ok(None),
    }
}

impl Settings {
    fn read() -> Result<Self> {
        let named = set("AWS_PROFILE");
        let profile = named.clone().unwrap_or_else(|| "default".to_owned());
        let section = match &*profile {
            "default" => profile.clone(),
            name => format!("profile {name}"),
        };
        let in_home =
            |name: &str| set("HOME").map(|home| PathBuf::from(home).join(".aws").join(name));
        let file =
            |variable: &str, name: &str| set(variable).map(PathBuf::from).or_else(|| in_home(name));
        let files = [
            (file("AWS_CONFIG_FILE", "config"), section),
            (
                file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
                profile.clone(),
            ),
        ];
        let mut values = HashMap::new();
        let mut is_there = named.is_none();
        for (path, section) in files {
            let Some(found) = path.map(|path| read_section(&path, &section)).transpose()? else {
                continue;
            };
            is_there |= found.is_some();
            values.extend(found.unwrap_or_default());
        }
        match is_there {
            true => Ok(Self { profile, values }),
            false => Err(wrong(format!(
                "AWS_PROFILE names {profile:?}, which is neither in ~/.aws/config nor in ~/.aws/credentials"
            ))),
        }
    }

    fn value(&self, name: &str) -> Option<String> {
        self.values
            .get(name)
            .filter(|value| !value.is_empty())
            .cloned()
    }

    fn region(&self) -> Option<String> {
        set("AWS_REGION")
            .or_else(|| set("AWS_DEFAULT_REGION"))
            .or_else(|| self.value("region"))
    }

    fn endpoint(&self, bucket: &str) -> Result<Option<String>> {
        let set = set("AWS_ENDPOINT_URL_S3")
            .or_else(|| set("AWS_ENDPOINT_URL"))
            .or_else(|| self.value("endpoint_url"));
        let Some(set) = set else {
            return Ok(self.region().and_then(|region| apart(&region)));
        };
        let endpoint = to_endpoint(set.as_bytes())
            .map_err(|why| wrong(format!("AWS_ENDPOINT_URL or endpoint_url: {why}")))?;
        Ok(Some(match self.value("addressing_style").as_deref() {
            Some("virtual") => with_bucket(&endpoint, bucket),
            _ => endpoint,
        }))
    }

    fn key(&self) -> Result<Option<Credential>> {
        let region = self.region();
        let credential = |id, secret, token| Credential {
            user: Some(id),
            secret,
            token,
            region: region.clone(),
        };
        if let (Some(id), Some(secret)) = (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY")) {
            return Ok(Some(credential(id, secret, set("AWS_SESSION_TOKEN"))));
        }
        let [id, secret, token] = [
            "aws_access_key_id",
            "aws_secret_access_key",
            "aws_session_token",
        ]
        .map(|name| self.value(name));
        if let (Some(id), Some(secret)) = (id, secret) {
            return Ok(Some(credential(id, secret, token)));
        }
        if let Some(process) = self.value("credential_process") {
            let printed = self.printed(&process)?;
            let Printed {
                access_key_id: id,
                secret_access_key: secret,
                session_token: token,
            } = printed;
            return Ok(Some(credential(id, secret, token)));
        }
        let profile = &self.profile;
        let elsewhere = [
            "sso_session",
            "sso_start_url",
            "role_arn",
            "web_identity_token_file",
        ];
        match elsewhere
            .into_iter()
            .find(|name| self.values.contains_key(*name))
        {
            Some(name) => Err(wrong(format!(
                "the profile {profile:?} gets its key by {name}, which brisk cannot do; \
                 eval \"$(aws configure export-credentials --profile {profile} --format env)\" puts one into the environment"
            ))),
            None => Ok(None),
        }
    }

    /// What a program prints. It could say anything, so nothing of that is shown.
    fn printed(&self, process: &str) -> Result<Printed> {
        let fails = |why: &str| {
            wrong(format!(
                "credential_process of the profile {:?} {why}",
                self.profile
            ))
        };
        let output = Command::new("sh")
            .args(["-c", process])
            .stdin(Stdio::null())
            .output()
            .map_err(|_| fails("cannot be started"))?;
        match output.status.success() {
            true => serde_json::from_slice(&output.stdout).map_err(|_| fails("prints no key")),
            false => Err(fails("fails")),
        }
    }
}

/// Amazon's stores in which other people may have the same bucket as in the one that it has for everybody.
fn apart(region: &str) -> Option<String> {
    let end = match region {
        region if region.starts_with("cn-") => "amazonaws.com.cn",
        region if region.starts_with("us-gov-") => "amazonaws.com",
        _ => return None,
    };
    to_endpoint(format!("https://s3.{region}.{end}").as_bytes()).ok()
}

/// The values of a section. None if the file or the section is not there.
fn read_section(path: &Path, section: &str) -> Result<Option<HashMap<String, String>>> {
    let failed = |why: String| wrong(format!("{}: {why}", path.display()));
    let text = match read(path) {
        Err(e) if matches!(e.kind(), NotFound | NotADirectory) => return Ok(None),
        text => text.map_err(|e| failed(e.to_string()))?,
    };
    let mut form = Ini::new_cs().defaults();
    form.delimiters = vec!['='];
    // A secret may have any character.
    form.enable_inline_comments = false;
    let mut ini = Ini::new_from_defaults(form);
    // What is wrong there could be a secret, so it is not shown.
    let mut found = ini
        .read(text)
        .map_err(|_| failed("it has a line that is none of a settings file".into()))?;
    let section = found.remove(section);
    Ok(section.map(|section| {
        let values = section.into_iter();
        values
            .filter_map(|(name, value)| Some((name.to_ascii_lowercase(), value?)))
            .collect()
    }))
}

/// A variable. An empty one counts as none.
fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::Name, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_apart_has_a_store_of_its_own() {
        for (region, endpoint) in [
            ("eu-west-1", None),
            ("cn-north-1", Some("https://s3.cn-north-1.amazonaws.com.cn")),
            (
                "us-gov-west-1",
                Some("https://s3.us-gov-west-1.amazonaws.com"),
            ),
            ("cn-x@b.example", None),
        ] {
            assert_eq!(apart(region).as_deref(), endpoint, "{region}");
        }
    }
}
