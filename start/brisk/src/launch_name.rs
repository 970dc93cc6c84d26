//! What tells launches of programs apart, for what brisk learns of them.
//!
//! | program | what counts |
//! |---|---|
//! | any | its path, as it was found: links are not followed, so each virtual environment has a Python of its own |
//! | one that runs scripts | also its arguments up to the script, the module or the class |
//! | one that is several programs in one | also its first argument that is no option: `git status` |
//! | one that starts another program | also that one, and what counts for it: `nice -n 10 git status` |
//!
//! Other arguments do not count: they name data, and most of what a start reads does not depend on them. If launches with
//! one name read different things, their profile has them all.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf, absolute};

use brisk_launch::LearnedPacks;

use crate::program_links::next_in_path;

/// Programs that run scripts, without digits, dots and hyphens at their ends.
const RUN_SCRIPTS: &[&str] = &[
    "Rscript", "bash", "bun", "dash", "deno", "dotnet", "fish", "guile", "java", "julia", "ksh",
    "lua", "luajit", "mono", "node", "nodejs", "perl", "php", "pypy", "python", "racket", "ruby",
    "sh", "tclsh", "wine", "wish", "zsh",
];

/// Options of these programs whose value is the next argument. What decides the launch itself, as `-m MODULE` and
/// `-jar FILE`, is none of them: its value ends the search.
const OF_SCRIPTS: &[&str] = &[
    "-W",
    "-X",
    "--add-modules",
    "--class-path",
    "--import",
    "--loader",
    "--module-path",
    "--require",
    "-I",
    "-classpath",
    "-cp",
    "-p",
    "-r",
];

/// Programs that are several in one.
const SEVERAL: &[&str] = &[
    "aws",
    "az",
    "bundle",
    "busybox",
    "cargo",
    "docker",
    "flatpak",
    "gcloud",
    "gh",
    "git",
    "go",
    "hg",
    "kubectl",
    "npm",
    "npx",
    "pip",
    "pipx",
    "pnpm",
    "podman",
    "poetry",
    "snap",
    "svn",
    "systemctl",
    "toybox",
    "uv",
    "uvx",
    "yarn",
];

/// Options of these programs whose value is the next argument.
const OF_SEVERAL: &[&str] = &[
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--config",
    "--project",
];

/// A program that starts the one that its arguments name, as `env A=b gcc` and `timeout 5 gcc`.
struct Wrapper {
    name: &'static str,
    /// Options whose value is the next argument.
    with_values: &'static [&'static str],
    /// How many arguments that are no options come before the program.
    operands: usize,
}

const WRAPPERS: &[Wrapper] = &[
    wrapper("chrt", &["-D", "-P", "-T"], 1),
    wrapper("dbus-run-session", &["--config-file", "--dbus-daemon"], 0),
    // Settings of variables come before the program, too.
    wrapper("env", &["--chdir", "--unset", "-C", "-u"], 0),
    wrapper("ionice", &["--class", "--classdata", "-c", "-n"], 0),
    wrapper("nice", &["--adjustment", "-n"], 0),
    wrapper("nohup", &[], 0),
    wrapper("setsid", &[], 0),
    wrapper(
        "stdbuf",
        &["--error", "--input", "--output", "-e", "-i", "-o"],
        0,
    ),
    wrapper(
        "systemd-inhibit",
        &["--mode", "--what", "--who", "--why"],
        0,
    ),
    wrapper("taskset", &[], 1),
    wrapper("time", &["--format", "--output", "-f", "-o"], 0),
    wrapper("timeout", &["--kill-after", "--signal", "-k", "-s"], 1),
    wrapper(
        "xvfb-run",
        &[
            "--auth-file",
            "--error-file",
            "--server-args",
            "--server-num",
            "--wait",
            "--xauth-protocol",
            "-e",
            "-f",
            "-n",
            "-p",
            "-s",
            "-w",
        ],
        0,
    ),
];

const fn wrapper(
    name: &'static str,
    with_values: &'static [&'static str],
    operands: usize,
) -> Wrapper {
    Wrapper {
        name,
        with_values,
        operands,
    }
}

/// How many wrappers one in the other are looked through.
const MOST_WRAPPERS: usize = 8;

/// The key of what is learned of this command, whose program was found at this absolute path.
pub fn key(
    packs: &LearnedPacks,
    program: &Path,
    command: &[OsString],
) -> brisk_launch::Result<String> {
    let arguments = command.get(1..).unwrap_or_default();
    packs.key_of_launch(&parts(program, arguments))
}

/// What people see of a launch with these [`parts`]: the programs, the script and the verb. Other arguments may be secret.
pub fn shown(parts: &[OsString]) -> Vec<OsString> {
    let is_file = |part: &OsString| Path::new(part).is_absolute() && Path::new(part).is_file();
    let mut is_behind_several = false;
    let is_shown = |part: &&OsString| {
        let was_behind = std::mem::replace(&mut is_behind_several, is_one_of(part, SEVERAL));
        was_behind || is_file(part)
    };
    parts.iter().filter(is_shown).cloned().collect()
}

/// Whether a program has one of these names, without a version behind it.
fn is_one_of(program: impl AsRef<Path>, list: &[&str]) -> bool {
    let name = program.as_ref().file_name().unwrap_or_default();
    let name = trimmed(name.as_bytes());
    list.iter().any(|one| one.as_bytes() == name)
}

/// What has to be the same for two launches to share what is learned. `program` is an absolute path.
pub fn parts(program: &Path, arguments: &[OsString]) -> Vec<OsString> {
    parts_by(program, arguments, |name| {
        match name.as_bytes().contains(&b'/') {
            true => absolute(name).ok(),
            false => next_in_path(name),
        }
    })
}

/// The same, with what finds the programs that others start.
fn parts_by(
    program: &Path,
    mut arguments: &[OsString],
    find: impl Fn(&OsStr) -> Option<PathBuf>,
) -> Vec<OsString> {
    let mut program = program.to_owned();
    let mut parts = Vec::new();
    for _ in 0..MOST_WRAPPERS {
        let Some(wrapper) = WRAPPERS.iter().find(|known| program.ends_with(known.name)) else {
            break;
        };
        let Some((inner, behind)) = wrapper.inner(arguments) else {
            break;
        };
        let Some(inner) = find(inner) else {
            break;
        };
        parts.push(program.into());
        (program, arguments) = (inner, behind);
    }
    parts.extend(parts_of_one(&program, arguments));
    parts
}

impl Wrapper {
    /// The program that it starts, and the arguments of that.
    fn inner<'a>(&self, mut arguments: &'a [OsString]) -> Option<(&'a OsString, &'a [OsString])> {
        let mut operands = self.operands;
        loop {
            let at = first_word(arguments, self.with_values)?;
            let (word, behind) = arguments.get(at..)?.split_first()?;
            let is_setting = self.name == "env" && word.as_bytes().contains(&b'=');
            if operands == 0 && !is_setting {
                return Some((word, behind));
            }
            operands = operands.saturating_sub(1);
            arguments = behind;
        }
    }
}

/// The same of a program, whatever it starts.
fn parts_of_one(program: &Path, arguments: &[OsString]) -> Vec<OsString> {
    let mut parts = vec![program.into()];
    if is_one_of(program, RUN_SCRIPTS) {
        let end = first_word(arguments, OF_SCRIPTS).map_or(arguments.len(), |at| at + 1);
        parts.extend_from_slice(arguments.get(..end).unwrap_or_default());
        if let Some(script) = parts.last_mut().filter(|last| Path::new(last).is_file()) {
            // The same script from another directory is the same.
            *script = absolute(&*script).map_or_else(|_| script.clone(), OsString::from);
        }
    } else if is_one_of(program, SEVERAL) {
        let word = first_word(arguments, OF_SEVERAL).and_then(|at| arguments.get(at));
        parts.extend(word.cloned());
    }
    parts
}

/// The name of a program without a version behind it.
fn trimmed(name: &[u8]) -> &[u8] {
    let is_version = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    let end = name.iter().rposition(|byte| !is_version(byte));
    name.get(..end.map_or(0, |end| end + 1)).unwrap_or_default()
}

/// Where the first argument is that is neither an option nor the value of one of these options.
fn first_word(arguments: &[OsString], with_values: &[&str]) -> Option<usize> {
    let mut is_value = false;
    arguments.iter().position(|argument| {
        if std::mem::take(&mut is_value) {
            return false;
        }
        is_value = with_values
            .iter()
            .any(|option| argument == OsStr::new(option));
        !argument.as_bytes().starts_with(b"-")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_verbs_tell_launches_apart_and_data_does_not() {
        for (command, expected) in [
            ("/usr/bin/gcc -O2 -c a.c", "/usr/bin/gcc"),
            ("/usr/bin/ls /tmp", "/usr/bin/ls"),
            ("/v/bin/python", "/v/bin/python"),
            (
                "/v/bin/python3.12 -W error -m http.server 80",
                "/v/bin/python3.12 -W error -m http.server",
            ),
            ("/v/bin/python3 none.py in.txt", "/v/bin/python3 none.py"),
            ("/v/bin/python -c import -v", "/v/bin/python -c import"),
            (
                "/usr/bin/java -Xmx1g -cp a:b Main in",
                "/usr/bin/java -Xmx1g -cp a:b Main",
            ),
            ("/usr/bin/java -jar a.jar in", "/usr/bin/java -jar a.jar"),
            (
                "/usr/bin/node -r x app.js --port 1",
                "/usr/bin/node -r x app.js",
            ),
            ("/usr/bin/git -C dir status -s", "/usr/bin/git status"),
            ("/usr/bin/git --version", "/usr/bin/git"),
            ("/usr/bin/perl5.36-x86 a", "/usr/bin/perl5.36-x86"),
        ] {
            let mut words = command.split(' ').map(OsString::from);
            let program = words.next().expect("a program");
            let arguments: Vec<_> = words.collect();
            let found = parts(Path::new(&program), &arguments);
            let found: Vec<_> = found.iter().map(|part| part.to_string_lossy()).collect();
            assert_eq!(found.join(" "), expected, "{command}");
        }
    }

    #[test]
    fn what_others_start_is_known_by_its_path() {
        for (command, expected) in [
            (
                "/usr/bin/env -u X A=b CC=/usr/bin/cc git -C d status -s",
                "/usr/bin/env /found/git status",
            ),
            (
                "/usr/bin/nice -n 10 timeout -k 1 5s gcc -c a.c",
                "/usr/bin/nice /found/timeout /found/gcc",
            ),
            (
                "/usr/bin/xvfb-run -a -s x /v/bin/python3 -m x y",
                "/usr/bin/xvfb-run /v/bin/python3 -m x",
            ),
            ("/usr/bin/timeout 5 7z a x.7z", "/usr/bin/timeout /found/7z"),
            ("/usr/bin/setsid -f gcc a.c", "/usr/bin/setsid /found/gcc"),
            ("/usr/bin/ionice -c idle gcc", "/usr/bin/ionice /found/gcc"),
            ("/usr/bin/stdbuf -o L gcc", "/usr/bin/stdbuf /found/gcc"),
            ("/usr/bin/taskset -c 0,1 gcc", "/usr/bin/taskset /found/gcc"),
            ("/usr/bin/chrt -f 10 gcc", "/usr/bin/chrt /found/gcc"),
            ("/usr/bin/nohup A=b gcc", "/usr/bin/nohup /found/A=b"),
            ("/usr/bin/timeout 5 none x", "/usr/bin/timeout"),
            ("/usr/bin/timeout 5", "/usr/bin/timeout"),
            ("/usr/bin/env", "/usr/bin/env"),
        ] {
            let found = parts_of(command);
            assert_eq!(found.join(" "), expected, "{command}");
        }
        let deep = format!("/usr/bin/nice{}", " nice".repeat(100_000));
        assert_eq!(parts_of(&deep).len(), MOST_WRAPPERS + 1);
    }

    #[test]
    fn people_see_programs_scripts_and_verbs_and_no_other_arguments() {
        let home = tempfile::tempdir().expect("room");
        let file = |name: &str| {
            let path = home.path().join(name);
            std::fs::write(&path, "").expect("room");
            path.to_str().expect("text").to_owned()
        };
        let (sh, git, script) = (file("sh"), file("git"), file("s.py"));
        for (parts, expected) in [
            (vec![&*sh, "-c", "secret"], sh.clone()),
            (vec![&*sh, "secret", &*script], format!("{sh} {script}")),
            (vec![&*git, "status"], format!("{git} status")),
        ] {
            let command = parts.join(" ");
            let parts: Vec<_> = parts.into_iter().map(OsString::from).collect();
            let seen = shown(&parts);
            let seen: Vec<_> = seen.iter().map(|part| part.to_string_lossy()).collect();
            assert_eq!(seen.join(" "), expected, "{command}");
        }
    }

    /// As if all programs were found, but one.
    fn parts_of(command: &str) -> Vec<String> {
        let mut words = command.split(' ').map(OsString::from);
        let program = words.next().expect("a program");
        let arguments: Vec<_> = words.collect();
        let find = |name: &OsStr| (name != "none").then(|| Path::new("/found").join(name));
        let found = parts_by(Path::new(&program), &arguments, find);
        let found = found.iter().map(|part| part.to_string_lossy().into_owned());
        found.collect()
    }

    #[test]
    fn a_script_is_known_by_its_path() {
        let home = tempfile::tempdir().expect("room");
        let script = home.path().join("s.sh");
        std::fs::write(&script, "").expect("room");
        let found = parts(Path::new("/bin/sh"), &[script.clone().into(), "x".into()]);
        assert_eq!(found, [OsString::from("/bin/sh"), script.into()]);
    }
}
