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
use std::path::{Path, absolute};

use brisk_mount::LearnedPacks;

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

/// Programs that start the one that their arguments name, as `env A=b gcc` and `timeout 5 gcc`.
const WRAPPERS: &[&str] = &[
    "chrt",
    "dbus-run-session",
    "env",
    "ionice",
    "nice",
    "nohup",
    "numactl",
    "prlimit",
    "setarch",
    "setsid",
    "stdbuf",
    "systemd-inhibit",
    "taskset",
    "time",
    "timeout",
    "xvfb-run",
];

/// Options of these programs whose value is the next argument.
const OF_WRAPPERS: &[&str] = &[
    "--chdir",
    "--kill-after",
    "--server-args",
    "--server-num",
    "--signal",
    "--unset",
    "-C",
    "-e",
    "-f",
    "-k",
    "-n",
    "-o",
    "-s",
    "-u",
];

/// The key of what is learned of this command, whose program was found at this absolute path.
pub fn key(program: &Path, command: &[OsString]) -> String {
    let arguments = command.get(1..).unwrap_or_default();
    LearnedPacks::key_of_launch(&parts(program, arguments))
}

/// What has to be the same for two launches to share what is learned. `program` is an absolute path.
pub fn parts(program: &Path, arguments: &[OsString]) -> Vec<OsString> {
    let mut parts = vec![program.into()];
    let name = program.file_name().unwrap_or_default();
    let name = trimmed(name.as_bytes());
    let is_one_of = |list: &[&str]| list.iter().any(|one| one.as_bytes() == name);
    if is_one_of(RUN_SCRIPTS) {
        let end = first_word(arguments, OF_SCRIPTS).map_or(arguments.len(), |at| at + 1);
        parts.extend_from_slice(arguments.get(..end).unwrap_or_default());
        if let Some(script) = parts.last_mut().filter(|last| Path::new(last).is_file()) {
            // The same script from another directory is the same.
            *script = absolute(&*script).map_or_else(|_| script.clone(), OsString::from);
        }
    } else if is_one_of(SEVERAL) {
        let word = first_word(arguments, OF_SEVERAL).and_then(|at| arguments.get(at));
        parts.extend(word.cloned());
    } else if is_one_of(WRAPPERS)
        && let Some((inner, arguments)) = wrapped(arguments)
    {
        parts.extend(self::parts(Path::new(inner), arguments));
    }
    parts
}

/// The program that a wrapper starts, and its arguments: the first word that is neither an option nor a setting of a variable
/// nor a number, such as a time or a priority.
fn wrapped(arguments: &[OsString]) -> Option<(&OsString, &[OsString])> {
    let at = first_word(arguments, OF_WRAPPERS)?;
    let (word, rest) = arguments.get(at..)?.split_first()?;
    let bytes = word.as_bytes();
    match bytes.contains(&b'=') || bytes.first().is_some_and(u8::is_ascii_digit) {
        true => wrapped(rest),
        false => Some((word, rest)),
    }
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
            (
                "/usr/bin/env -u X A=b CC=/usr/bin/cc git -C d status -s",
                "/usr/bin/env git status",
            ),
            (
                "/usr/bin/nice -n 10 timeout -k 1 5s gcc -c a.c",
                "/usr/bin/nice timeout gcc",
            ),
            (
                "/usr/bin/xvfb-run -a python3 -m x y",
                "/usr/bin/xvfb-run python3 -m x",
            ),
            ("/usr/bin/timeout 5", "/usr/bin/timeout"),
            ("/usr/bin/env", "/usr/bin/env"),
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
    fn a_script_is_known_by_its_path() {
        let home = tempfile::tempdir().expect("room");
        let script = home.path().join("s.sh");
        std::fs::write(&script, "").expect("room");
        let found = parts(Path::new("/bin/sh"), &[script.clone().into(), "x".into()]);
        assert_eq!(found, [OsString::from("/bin/sh"), script.into()]);
    }
}
