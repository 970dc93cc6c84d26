//! How a container image starts its program, as the entry of an image.

use std::ffi::OsString;

use anyhow::Context;
use brisk_image::EntryPoint;
use brisk_terminal::names::shown;

use super::container_image::Container;

/// Where programs are looked for if the image does not say it: what Docker sets.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Names of variables that begin with this are brisk's own.
const OWN: &str = "BRISK_";

/// Users of images that are root.
const ROOT: [&str; 6] = ["", "0", "root", "0:0", "root:root", "0:root"];

impl Container {
    /// The entry that starts what the container would, with the image as root directory, and what of it is different. None
    /// if the image names no program.
    pub fn entry(&self) -> anyhow::Result<(Option<EntryPoint>, Vec<String>)> {
        let mut warnings = self.warnings.clone();
        let Some(config) = &self.configuration.config else {
            return Ok((None, warnings));
        };
        let words = [&config.entrypoint, &config.cmd];
        let words = words.into_iter().flatten().flatten();
        let command: Vec<_> = words.map(OsString::from).collect();
        if command.is_empty() {
            return Ok((None, warnings));
        }
        if let Some(user) = config
            .user
            .as_ref()
            .filter(|user| !ROOT.contains(&user.as_str()))
        {
            warnings.push(format!(
                "the container runs its program as user {}, and brisk run as the user who calls it",
                shown(user)
            ));
        }
        let directory = config
            .working_dir
            .as_deref()
            .filter(|path| !path.is_empty());
        let mut variables = vec![("PATH", PATH)];
        for variable in config.env.iter().flatten() {
            let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
            if name.starts_with(OWN) || name.is_empty() {
                warnings.push(format!(
                    "the variable {} of the image was left out, as its name is brisk's own or empty",
                    shown(variable)
                ));
                continue;
            }
            // The last one counts.
            variables.retain(|(known, _)| *known != name);
            variables.push((name, value));
        }
        let entry = EntryPoint::new(command)
            .map(|entry| entry.root(true))
            .and_then(|entry| entry.directory(directory.unwrap_or("/")))
            .and_then(|entry| {
                let mut variables = variables.into_iter();
                variables.try_fold(entry, |entry, (name, value)| entry.variable(name, value))
            });
        let entry = entry.context("cannot record what the image starts; name it with --entry")?;
        Ok((Some(entry), warnings))
    }
}
