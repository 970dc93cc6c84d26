//! The Python and the platform that files are for.

use std::process::Command;

use anyhow::{Context, bail};
use pep508_rs::{MarkerEnvironment, MarkerEnvironmentBuilder};
use pyindex::{Chooser, Interpreter, Tags, platforms};

use crate::args::Target;

/// What files are for.
pub(crate) struct Environment {
    pub(crate) chooser: Chooser,
    pub(crate) markers: MarkerEnvironment,
}

impl Environment {
    pub(crate) fn of(args: &Target) -> anyhow::Result<Self> {
        let python = match &args.python {
            Some(version) => version.clone(),
            None => python3()?,
        };
        let platform = match &args.platform {
            Some(tag) => tag.clone(),
            None => own_platform()?,
        };
        let short = || {
            let mut parts = python.split('.').map(|part| part.parse::<u32>().ok());
            Some((parts.next()??, parts.next()??))
        };
        let Some((major, minor)) = short() else {
            bail!("--python: {python:?} is no version, allowed is one such as 3.12 or 3.12.4");
        };
        let tags = Tags::of(&Interpreter::cpython((major, minor), platforms(&platform)?));
        let full = match python.split('.').count() {
            2 => format!("{python}.0"),
            _ => python.clone(),
        };
        let target = pyindex::Target::new(&full, tags);
        let target =
            target.with_context(|| format!("--python: {python:?} is no version of PEP 440"))?;
        let system = System::of(&platform);
        let markers = MarkerEnvironment::try_from(MarkerEnvironmentBuilder {
            implementation_name: "cpython",
            implementation_version: &full,
            os_name: system.os,
            platform_machine: system.machine,
            platform_python_implementation: "CPython",
            platform_release: "",
            platform_system: system.name,
            platform_version: "",
            python_full_version: &full,
            python_version: &format!("{major}.{minor}"),
            sys_platform: system.sys,
        })?;
        Ok(Self {
            chooser: Chooser::new(target),
            markers,
        })
    }
}

/// What markers call a platform.
struct System<'a> {
    os: &'static str,
    name: &'static str,
    sys: &'static str,
    machine: &'a str,
}

impl<'a> System<'a> {
    fn of(tag: &'a str) -> Self {
        const MACHINES: [&str; 9] = [
            "x86_64", "aarch64", "armv7l", "i686", "ppc64le", "s390x", "riscv64", "arm64", "amd64",
        ];
        let machine = MACHINES.into_iter().find(|machine| tag.ends_with(machine));
        let (os, name, sys) = match tag {
            tag if tag.starts_with("win") => ("nt", "Windows", "win32"),
            tag if tag.starts_with("macosx") => ("posix", "Darwin", "darwin"),
            _ => ("posix", "Linux", "linux"),
        };
        Self {
            os,
            name,
            sys,
            machine: match (name, machine) {
                ("Windows", Some("amd64")) => "AMD64",
                (_, machine) => machine.unwrap_or_default(),
            },
        }
    }
}

/// What a command prints, which is short.
fn said(command: &mut Command, instead: &str) -> anyhow::Result<String> {
    let output = command.output();
    let name = command.get_program().to_string_lossy().into_owned();
    let output = output.with_context(|| format!("cannot start {name}; {instead}"))?;
    if !output.status.success() {
        bail!("{name} ended with {}; {instead}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn python3() -> anyhow::Result<String> {
    let script = "import platform; print(platform.python_version())";
    said(
        Command::new("python3").args(["-I", "-c", script]),
        "say with --python which version files are for",
    )
}

/// The tag of this system: its C library, and its processor.
fn own_platform() -> anyhow::Result<String> {
    let instead = "say with --platform what files are for";
    let version = said(Command::new("getconf").arg("GNU_LIBC_VERSION"), instead)?;
    let numbers = version
        .strip_prefix("glibc ")
        .and_then(|numbers| numbers.split_once('.'));
    let Some((major, minor)) = numbers else {
        bail!("the C library calls itself {version:?}, and allowed is glibc; {instead}");
    };
    Ok(format!(
        "manylinux_{major}_{minor}_{}",
        std::env::consts::ARCH
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_know_the_platform() {
        for (tag, expected) in [
            (
                "manylinux_2_28_x86_64",
                ("posix", "Linux", "linux", "x86_64"),
            ),
            (
                "musllinux_1_2_aarch64",
                ("posix", "Linux", "linux", "aarch64"),
            ),
            ("macosx_14_0_arm64", ("posix", "Darwin", "darwin", "arm64")),
            ("win_amd64", ("nt", "Windows", "win32", "AMD64")),
        ] {
            let system = System::of(tag);
            assert_eq!(
                (system.os, system.name, system.sys, system.machine),
                expected
            );
        }
    }
}
