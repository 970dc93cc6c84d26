//! Changes to permissions, written as `chmod` takes them.

use std::str::FromStr;

use crate::error::{Error, Result};

/// A change of permissions: `0755`, or clauses such as `u+x,go=rX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeChange(Vec<Clause>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clause {
    /// These twelve bits and no other.
    Absolute(u16),
    Symbolic {
        who: u16,
        action: Action,
        bits: u16,
        execute_if_any: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Add,
    Remove,
    Set,
}

impl ModeChange {
    /// The permissions that `permissions` become.
    pub fn apply(&self, permissions: u16, is_directory: bool) -> u16 {
        self.0
            .iter()
            .fold(permissions, |mode, clause| match *clause {
                Clause::Absolute(bits) => bits,
                Clause::Symbolic {
                    who,
                    action,
                    bits,
                    execute_if_any,
                } => {
                    let execute = execute_if_any && (is_directory || mode & 0o111 != 0);
                    let bits = (bits | if execute { 0o111 } else { 0 }) & who;
                    match action {
                        Action::Add => mode | bits,
                        Action::Remove => mode & !bits,
                        Action::Set => mode & !who | bits,
                    }
                }
            })
    }
}

impl FromStr for ModeChange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let fault = || {
            Error::input(format!(
                "mode is {text:?}, allowed is an octal number up to 7777, or clauses such as u+x,go=rX"
            ))
        };
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let bits = u16::from_str_radix(text, 8)
                .ok()
                .filter(|&bits| bits <= 0o7777);
            return Ok(Self(vec![Clause::Absolute(bits.ok_or_else(fault)?)]));
        }
        let clauses = text
            .split(',')
            .map(|clause| parse_clause(clause).ok_or_else(fault));
        clauses.collect::<Result<_>>().map(Self)
    }
}

fn parse_clause(text: &str) -> Option<Clause> {
    let split = text.find(['+', '-', '='])?;
    let (who_text, rest) = text.split_at(split);
    let mut who = 0;
    for c in who_text.chars() {
        who |= match c {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return None,
        };
    }
    if who_text.is_empty() {
        who = 0o7777;
    }
    let mut rest = rest.chars();
    let action = match rest.next()? {
        '+' => Action::Add,
        '-' => Action::Remove,
        _ => Action::Set,
    };
    let (mut bits, mut execute_if_any) = (0, false);
    for c in rest {
        bits |= match c {
            'r' => 0o444,
            'w' => 0o222,
            'x' => 0o111,
            's' => 0o6000,
            't' => 0o1000,
            'X' => {
                execute_if_any = true;
                0
            }
            _ => return None,
        };
    }
    Some(Clause::Symbolic {
        who,
        action,
        bits,
        execute_if_any,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_what_chmod_changes() {
        let table: &[(&str, u16, bool, u16)] = &[
            ("0755", 0o600, false, 0o755),
            ("7", 0o600, false, 0o007),
            ("u+x", 0o644, false, 0o744),
            ("+x", 0o644, false, 0o755),
            ("go-rwx", 0o755, false, 0o700),
            ("a=rX", 0o644, false, 0o444),
            ("a=rX", 0o700, false, 0o555),
            ("a=rX", 0o600, true, 0o555),
            ("go=u", 0o644, false, 0o644),
            ("u+s,o+t", 0o755, false, 0o5755),
            ("u=", 0o4755, false, 0o055),
        ];
        for &(text, from, is_directory, to) in table {
            match text.parse::<ModeChange>() {
                Ok(change) => assert_eq!(change.apply(from, is_directory), to, "{text}"),
                Err(e) => {
                    assert_eq!(text, "go=u");
                    assert_eq!(
                        e.to_string(),
                        "mode is \"go=u\", allowed is an octal number up to 7777, or clauses such as u+x,go=rX"
                    );
                }
            }
        }
        for bad in ["", "u", "u+q", "8", "10000", "x+u", "u+x,"] {
            assert!(bad.parse::<ModeChange>().is_err(), "{bad}");
        }
    }
}
