//! Desktop entries: files that say how a desktop starts a program (Desktop Entry Specification 1.5 of freedesktop.org).
//!
//! Those in images are from strangers. So they are read within bounds, and nothing of them is executed but the words of
//! `Exec=`, which no shell sees.

use anyhow::{Result, bail};
use brisk_terminal::names::shown;

/// The longest file that is read. Those of large programs with all their translations have some 50 KB.
pub const LONGEST: u64 = 256 << 10;

/// The group that describes the program.
const MAIN: &str = "[Desktop Entry]";

/// Where the arguments stand in a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// In front of which word the user's arguments stand. As many as there are words if they stand last.
    pub arguments_at: usize,
    /// The code that stands there: what kind of arguments the program takes.
    pub code: Option<String>,
}

/// Keys and values of the group that describes the program, as they are written.
pub fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_main = |line: &&str| line.trim_end() == MAIN;
    let lines = text.lines().skip_while(move |line| !is_main(line)).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let lines = lines.filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        Some((key.trim(), value.trim()))
    })
}

/// The value of `key` in that group. The first one counts.
pub fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = lines(text);
    lines.find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// A value without the escapes that all texts may have.
pub fn unescaped(value: &str) -> Result<String> {
    let mut text = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        text.push(match letters.next() {
            Some('s') => ' ',
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('\\') => '\\',
            found => bail!(
                "{} has the escape \\{}, allowed are \\s, \\n, \\t, \\r and \\\\",
                shown(value),
                found.map(String::from).unwrap_or_default()
            ),
        });
    }
    Ok(text)
}

/// The words of an `Exec=`, with the field codes taken out.
pub fn parse_exec(value: &str) -> Result<Exec> {
    let mut words = Vec::new();
    let mut arguments = None;
    for (word, is_quoted) in split(&unescaped(value)?)? {
        if is_quoted {
            words.push(word);
            continue;
        }
        match word.as_str() {
            "%f" | "%F" | "%u" | "%U" => {
                arguments.get_or_insert((words.len(), word));
            }
            // Icon, name and file of the entry, which nobody has here, and codes that are deprecated.
            "%i" | "%c" | "%k" | "%d" | "%D" | "%n" | "%N" | "%v" | "%m" => {}
            _ => words.push(without_codes(&word)?),
        }
    }
    let (arguments_at, code) = arguments.unzip();
    match words.first() {
        Some(program) if !program.is_empty() => Ok(Exec {
            arguments_at: arguments_at.unwrap_or(words.len()).max(1),
            code,
            words,
        }),
        _ => bail!(
            "Exec= is {}, allowed is a program and its arguments",
            shown(value)
        ),
    }
}

/// A word in which codes stand among other letters: `%%` is a percent sign, and others are nothing.
fn without_codes(word: &str) -> Result<String> {
    let mut text = String::new();
    let mut letters = word.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '%' => match letters.next() {
                Some('%') => text.push('%'),
                Some(code) if "fFuUickdDnNvm".contains(code) => {}
                found => bail!(
                    "Exec= has the code %{}, allowed are those of the Desktop Entry Specification",
                    found
                        .map(|code| shown(code.to_string()))
                        .unwrap_or_default()
                ),
            },
            _ => text.push(letter),
        }
    }
    Ok(text)
}

/// The words of a command, and whether each one was in quotes.
fn split(command: &str) -> Result<Vec<(String, bool)>> {
    let mut words = Vec::new();
    let mut letters = command.chars().peekable();
    loop {
        while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
        let Some(first) = letters.next() else {
            return Ok(words);
        };
        let mut word = String::new();
        if first != '"' {
            word.push(first);
            while let Some(letter) = letters.next_if(|letter| !letter.is_whitespace()) {
                word.push(letter);
            }
            words.push((word, false));
            continue;
        }
        loop {
            match letters.next() {
                Some('"') => break,
                Some('\\') => match letters.next() {
                    Some(letter) => word.push(letter),
                    None => bail!("Exec= ends within quotes"),
                },
                Some(letter) => word.push(letter),
                None => bail!("Exec= ends within quotes"),
            }
        }
        words.push((word, true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_group_of_the_program_counts() {
        let text = "# Name=no\n[Other]\nExec=no\n[Desktop Entry]\nName = App\nName[de]=Anwendung\n\nExec=app %U\n\
                    [Desktop Action New]\nExec=no\nIcon=no\n";
        assert_eq!(value(text, "Name"), Some("App"));
        assert_eq!(value(text, "Exec"), Some("app %U"));
        assert_eq!(value(text, "Icon"), None);
        assert_eq!(value("Exec=no\n", "Exec"), None);
    }

    #[test]
    fn commands_are_split_as_the_specification_says() {
        for (exec, words, at) in [
            ("app", &["app"][..], 1),
            ("app %F", &["app"], 1),
            ("app --open %u --quiet", &["app", "--open", "--quiet"], 2),
            ("%f app", &["app"], 1),
            ("  app \t -c  ", &["app", "-c"], 2),
            (
                r#""/a b/app" "a \\"b\\" \\$c \\\\d" x"#,
                &["/a b/app", r#"a "b" $c \d"#, "x"],
                3,
            ),
            (r#"app "" "%f""#, &["app", "", "%f"], 3),
            (
                "app 100%% --x=%c --icon %i",
                &["app", "100%", "--x=", "--icon"],
                4,
            ),
            (r"app a\sb", &["app", "a", "b"], 3),
        ] {
            let found = parse_exec(exec).unwrap();
            assert_eq!(
                (found.words.as_slice(), found.arguments_at),
                (
                    &words
                        .iter()
                        .map(|word| (*word).to_owned())
                        .collect::<Vec<_>>()[..],
                    at
                ),
                "{exec}"
            );
        }
    }

    #[test]
    fn what_no_command_is_is_refused() {
        for (exec, message) in [
            ("", "Exec= is , allowed is a program and its arguments"),
            ("%U", "Exec= is %U, allowed is a program and its arguments"),
            (
                "\"\" a",
                "Exec= is \"\" a, allowed is a program and its arguments",
            ),
            ("\"app", "Exec= ends within quotes"),
            (
                "app %z",
                "Exec= has the code %z, allowed are those of the Desktop Entry Specification",
            ),
            (
                r"app \q",
                r"app \q has the escape \q, allowed are \s, \n, \t, \r and \\",
            ),
        ] {
            assert_eq!(parse_exec(exec).unwrap_err().to_string(), message);
        }
    }
}
