//! The Python and the platform that files are for.

use std::env::consts::ARCH;
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, bail};
use pep440_rs::Version;
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
        let mut python = match &args.python {
            Some(version) => Python::cpython(version)?,
            None => Python::python3()?,
        };
        if let Some(abi) = &args.abi {
            python.set_abi(abi)?;
        }
        match &args.platform {
            Some(tag) => python.environment(tag, platforms(tag)?),
            None => {
                let tag = own_platform()?;
                // As in packaging 26.3, wheels that were built here come first.
                let mut all = own_machines();
                all.extend(platforms(&tag)?);
                python.environment(&tag, all)
            }
        }
    }
}

/// A Python, as far as wheels and markers know it.
#[derive(Debug)]
struct Python {
    /// As PEP 440 has it, such as 3.12.4 or 3.15.0a1.
    version: Version,
    implementation: Implementation,
    /// Of the implementation.
    implementation_version: String,
    /// None: the usual one of CPython.
    abis: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Implementation {
    /// `sys.implementation.name`.
    name: String,
    /// `platform.python_implementation()`.
    called: String,
    /// What tags begin with.
    short: String,
}

impl Implementation {
    fn of(name: &str) -> Self {
        let (called, short) = match name {
            "cpython" => ("CPython", "cp"),
            "pypy" => ("PyPy", "pp"),
            "graalpy" => ("GraalVM", "graalpy"),
            other => (other, other),
        };
        Self {
            name: name.to_owned(),
            called: called.to_owned(),
            short: short.to_owned(),
        }
    }
}

impl Python {
    /// A CPython of this version.
    fn cpython(version: &str) -> anyhow::Result<Self> {
        let wrong = || {
            format!("--python: {version:?} is no version, allowed is one such as 3.12 or 3.12.4")
        };
        let parsed = of_python(version).with_context(wrong)?;
        Ok(Self {
            implementation: Implementation::of("cpython"),
            implementation_version: full(&parsed),
            version: parsed,
            abis: None,
        })
    }

    /// What python3 says of itself.
    fn python3() -> anyhow::Result<Self> {
        let instead = "say with --python which version files are for";
        // Nothing is imported that python3 has not imported before.
        let script = "import sys, _imp\n\
            v = sys.implementation.version\n\
            print(sys.version.split()[0])\n\
            print(sys.implementation.name)\n\
            print('%d.%d.%d' % v[:3] + ('' if v[3] == 'final' else v[3][0] + str(v[4])))\n\
            print(_imp.extension_suffixes()[0])";
        let said = said(Command::new("python3").args(["-I", "-c", script]), instead)?;
        Self::of_said(&said)
            .with_context(|| format!("python3 says of itself {said:?}, and no version; {instead}"))
    }

    fn of_said(said: &str) -> Option<Self> {
        let mut lines = said.lines();
        Some(Self {
            version: of_python(lines.next()?)?,
            implementation: Implementation::of(lines.next()?),
            implementation_version: lines.next()?.to_owned(),
            abis: Some(abis_of_suffix(lines.next()?)?),
        })
    }

    fn set_abi(&mut self, abi: &str) -> anyhow::Result<()> {
        let numbers = |short: &str| {
            abi.strip_prefix(short)
                .filter(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
        };
        let (name, rest) = if let Some(rest) = numbers("cp") {
            ("cpython", rest)
        } else if let Some(rest) = numbers("pypy") {
            ("pypy", rest)
        } else if let Some(rest) = numbers("graalpy") {
            ("graalpy", rest)
        } else {
            bail!("--abi: {abi:?} is none, allowed is one such as cp313t or pypy311_pp73");
        };
        let [major, minor] = self.numbers();
        // GraalPy has its own version there.
        if name != "graalpy" && !is_of(rest, &format!("{major}{minor}")) {
            bail!(
                "--abi: {abi:?} is not of Python {major}.{minor}; say with --python which version it is of"
            );
        }
        self.abis = Some(with_release(abi));
        if self.implementation.name != name {
            self.implementation = Implementation::of(name);
            self.implementation_version = full(&self.version);
        }
        Ok(())
    }

    fn numbers(&self) -> [u64; 2] {
        let number = |at| self.version.release().get(at).copied().unwrap_or(0);
        [number(0), number(1)]
    }

    /// `platform`: the tag that says what markers call the platform.
    fn environment(&self, platform: &str, platforms: Vec<String>) -> anyhow::Result<Environment> {
        let [major, minor] = self.numbers();
        let small = |number| u32::try_from(number).context("--python: its numbers are too large");
        let mut interpreter = Interpreter::cpython((small(major)?, small(minor)?), platforms);
        interpreter
            .implementation
            .clone_from(&self.implementation.short);
        if let Some(abis) = &self.abis {
            interpreter.abis.clone_from(abis);
        }
        // As pip, requires-python looks at three numbers: 3.15.0a1 is 3.15.0.
        let micro = self.version.release().get(2).unwrap_or(&0);
        let numbers = format!("{major}.{minor}.{micro}");
        let target = pyindex::Target::new(&numbers, Tags::of(&interpreter))
            .context("--python: its numbers are too large")?;
        let system = System::of(platform);
        let markers = MarkerEnvironment::try_from(MarkerEnvironmentBuilder {
            implementation_name: &self.implementation.name,
            implementation_version: &self.implementation_version,
            os_name: system.os,
            platform_machine: system.machine,
            platform_python_implementation: &self.implementation.called,
            platform_release: "",
            platform_system: system.name,
            platform_version: "",
            python_full_version: &full(&self.version),
            python_version: &format!("{major}.{minor}"),
            sys_platform: system.sys,
        })?;
        Ok(Environment {
            chooser: Chooser::new(target),
            markers,
        })
    }
}

/// A version of Python with two numbers at least. Those that are built between releases end with a plus, which `packaging`
/// makes a label.
fn of_python(version: &str) -> Option<Version> {
    let parsed = match version.strip_suffix('+') {
        Some(before) => Version::from_str(&format!("{before}+local")),
        None => Version::from_str(version),
    };
    parsed.ok().filter(|version| version.release().len() >= 2)
}

/// With three numbers.
fn full(version: &Version) -> String {
    match version.release().len() {
        2 => {
            let mut release = version.release().to_vec();
            release.push(0);
            version.clone().with_release(release).to_string()
        }
        _ => version.to_string(),
    }
}

/// Whether what follows the name of an implementation begins with this version, and with no other digit after it.
fn is_of(rest: &str, version: &str) -> bool {
    rest.strip_prefix(version)
        .is_some_and(|rest| !rest.starts_with(|digit: char| digit.is_ascii_digit()))
}

/// The ABIs of what extensions of a Python are called: `.cpython-313t-x86_64-linux-gnu.so` is `cp313t`, as `packaging` has it.
fn abis_of_suffix(suffix: &str) -> Option<Vec<String>> {
    let name = suffix.strip_prefix('.')?.split('.').next()?;
    let mut parts = name.split('-');
    let abi = match parts.next()? {
        "cpython" => format!("cp{}", parts.next()?),
        pypy if pypy.starts_with("pypy") => format!("{pypy}_{}", parts.next()?),
        "graalpy" => format!("graalpy_{}_{}", parts.next()?, parts.next()?),
        graalpy if graalpy.starts_with("graalpy") => {
            format!("{graalpy}_{}_{}", parts.next()?, parts.next()?)
        }
        other if !other.is_empty() => other.to_owned(),
        _ => return None,
    };
    Some(with_release(&abi))
}

/// An ABI, and for one of a CPython that was built to be debugged, the usual one, too: it loads both.
fn with_release(abi: &str) -> Vec<String> {
    let release = abi
        .strip_prefix("cp")
        .and_then(|_| abi.strip_suffix('d'))
        .map(str::to_owned);
    [abi.to_owned()].into_iter().chain(release).collect()
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
        const MACHINES: [&str; 13] = [
            "x86_64",
            "aarch64",
            "armv7l",
            "armv8l",
            "armv6l",
            "i686",
            "ppc64le",
            "ppc64",
            "s390x",
            "riscv64",
            "loongarch64",
            "arm64",
            "i386",
        ];
        let ends = |tag: &str| {
            let machine = MACHINES.into_iter().find(|machine| tag.ends_with(machine));
            machine.unwrap_or_default()
        };
        let (os, name, sys, machine) = if tag.starts_with("win") {
            let machine = match tag {
                "win_amd64" => "AMD64",
                "win_arm64" => "ARM64",
                "win32" => "x86",
                _ => "",
            };
            ("nt", "Windows", "win32", machine)
        } else if tag.starts_with("macosx") {
            ("posix", "Darwin", "darwin", ends(tag))
        } else if tag.starts_with("ios") {
            // PEP 730. The SDK follows the processor.
            let processor = tag.rsplit_once('_').map_or(tag, |(before, _)| before);
            ("posix", "iOS", "ios", ends(processor))
        } else if tag.starts_with("android") {
            // PEP 738.
            let machine = match tag.splitn(3, '_').nth(2) {
                Some("arm64_v8a") => "aarch64",
                Some("armeabi_v7a") => "armv7l",
                Some("x86_64") => "x86_64",
                Some("x86") => "i686",
                _ => "",
            };
            ("posix", "Android", "android", machine)
        } else {
            ("posix", "Linux", "linux", ends(tag))
        };
        Self {
            os,
            name,
            sys,
            machine,
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
    Ok(format!("manylinux_{major}_{minor}_{}", machine(ARCH)))
}

/// The tags of wheels that are for this system and name no C library: pip and uv take them where they run.
fn own_machines() -> Vec<String> {
    vec![format!("linux_{}", machine(ARCH))]
}

/// What tags and markers call a processor of Rust.
fn machine(arch: &'static str) -> &'static str {
    match arch {
        "x86" => "i686",
        "arm" => "armv7l",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        "powerpc64" => "ppc64",
        other => other,
    }
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
            (
                "manylinux_2_31_armv7l",
                ("posix", "Linux", "linux", "armv7l"),
            ),
            ("linux_ppc64le", ("posix", "Linux", "linux", "ppc64le")),
            ("macosx_14_0_arm64", ("posix", "Darwin", "darwin", "arm64")),
            ("ios_13_0_arm64_iphoneos", ("posix", "iOS", "ios", "arm64")),
            (
                "ios_13_0_x86_64_iphonesimulator",
                ("posix", "iOS", "ios", "x86_64"),
            ),
            (
                "android_24_arm64_v8a",
                ("posix", "Android", "android", "aarch64"),
            ),
            ("android_24_x86", ("posix", "Android", "android", "i686")),
            ("win_amd64", ("nt", "Windows", "win32", "AMD64")),
            ("win_arm64", ("nt", "Windows", "win32", "ARM64")),
            ("win32", ("nt", "Windows", "win32", "x86")),
        ] {
            let system = System::of(tag);
            assert_eq!(
                (system.os, system.name, system.sys, system.machine),
                expected,
                "{tag}"
            );
        }
    }

    #[test]
    fn processors_have_the_names_of_tags() {
        for (arch, name) in [
            ("x86_64", "x86_64"),
            ("x86", "i686"),
            ("arm", "armv7l"),
            ("powerpc64", "ppc64le"),
            ("riscv64", "riscv64"),
        ] {
            assert_eq!(machine(arch), name);
        }
        assert_eq!(own_machines(), [format!("linux_{}", machine(ARCH))]);
    }

    #[test]
    fn a_python_says_what_it_is() {
        for (said, version, numbers, name, implementation_version, abis) in [
            (
                "3.12.4\ncpython\n3.12.4\n.cpython-312-x86_64-linux-gnu.so",
                "3.12.4",
                [3, 12],
                "CPython",
                "3.12.4",
                &["cp312"][..],
            ),
            (
                "3.13.0+\ncpython\n3.13.0\n.cpython-313t-x86_64-linux-gnu.so",
                "3.13.0+local",
                [3, 13],
                "CPython",
                "3.13.0",
                &["cp313t"],
            ),
            (
                "3.15.0a1\ncpython\n3.15.0a1\n.cpython-315td-x86_64-linux-gnu.so",
                "3.15.0a1",
                [3, 15],
                "CPython",
                "3.15.0a1",
                &["cp315td", "cp315t"],
            ),
            (
                "3.10.13\npypy\n7.3.13\n.pypy310-pp73-x86_64-linux-gnu.so",
                "3.10.13",
                [3, 10],
                "PyPy",
                "7.3.13",
                &["pypy310_pp73"],
            ),
            (
                "3.11.7\ngraalpy\n24.1.0\n.graalpy241-311-native-x86_64-linux.so",
                "3.11.7",
                [3, 11],
                "GraalVM",
                "24.1.0",
                &["graalpy241_311_native"],
            ),
        ] {
            let python = Python::of_said(said).unwrap();
            assert_eq!(python.version.to_string(), version);
            assert_eq!(python.numbers(), numbers);
            assert_eq!(python.implementation.called, name);
            assert_eq!(python.implementation_version, implementation_version);
            assert_eq!(python.abis.as_deref().unwrap(), abis);
            python.environment("linux_x86_64", vec![]).unwrap();
        }
        for wrong in ["", "3\ncpython\n3\n.so", "3.12.4\ncpython\n3.12.4\n"] {
            assert!(Python::of_said(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn requires_python_looks_at_numbers_only() {
        for (version, full_version, python) in [
            ("3.12", "3.12.0", "3.12.0"),
            ("3.15.0a1", "3.15.0a1", "3.15.0"),
            ("3.15rc2", "3.15.0rc2", "3.15.0"),
            ("3.13.1+", "3.13.1+local", "3.13.1"),
        ] {
            let environment = Python::cpython(version)
                .unwrap()
                .environment("linux_x86_64", vec![])
                .unwrap();
            assert_eq!(
                environment.markers.python_full_version().to_string(),
                full_version
            );
            assert_eq!(environment.chooser.target().python(), python);
        }
        for wrong in ["", "3", "3.x", "three"] {
            assert_eq!(
                Python::cpython(wrong).unwrap_err().to_string(),
                format!("--python: {wrong:?} is no version, allowed is one such as 3.12 or 3.12.4")
            );
        }
    }

    #[test]
    fn an_abi_says_which_implementation_it_is_of() {
        let mut python = Python::cpython("3.13.2").unwrap();
        python.set_abi("cp313t").unwrap();
        assert_eq!(python.implementation.name, "cpython");
        python.set_abi("pypy313_pp73").unwrap();
        assert_eq!(python.implementation.called, "PyPy");
        assert_eq!(python.abis.as_deref().unwrap(), ["pypy313_pp73"]);
        python.set_abi("graalpy242_313_native").unwrap();
        assert_eq!(python.implementation.short, "graalpy");
        for (wrong, message) in [
            (
                "cp312",
                "--abi: \"cp312\" is not of Python 3.13; say with --python which version it is of",
            ),
            (
                "cp3130",
                "--abi: \"cp3130\" is not of Python 3.13; say with --python which version it is of",
            ),
            (
                "abi3",
                "--abi: \"abi3\" is none, allowed is one such as cp313t or pypy311_pp73",
            ),
        ] {
            assert_eq!(python.set_abi(wrong).unwrap_err().to_string(), message);
        }
    }
}
