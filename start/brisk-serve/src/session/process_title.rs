//! What `ps` shows as the arguments of a session's processes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::sys::arguments::{ShownMemory, show_arguments};

/// The first word of the arguments. The name of each process says which part of the session it is.
const NAME: &[u8] = b"brisk-session";

/// Shows `brisk-session IMAGE…` as the arguments of this process and of those that it starts. They came into being by a
/// fork, and would otherwise show the arguments of the first run, whatever runs by now.
///
/// The arguments are only for people, so a kernel that does not allow this is no failure.
pub(super) fn show_images<'a>(images: impl Iterator<Item = &'a OsStr>) {
    let mut text = NAME.to_vec();
    for image in images {
        text.push(0);
        text.extend_from_slice(image.as_bytes());
    }
    text.push(0);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some(shown) = parse(&stat) {
        // It is the process's for the rest of its life.
        show_arguments(text.leak(), shown).ok();
    }
}

/// Reads `/proc/self/stat` (proc_pid_stat(5)). None if it has another form, or the kernel hides the addresses.
fn parse(stat: &str) -> Option<ShownMemory> {
    // The name is in parentheses, and may have spaces and parentheses in it. The state follows, which is field 3.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let field = |number: usize| -> Option<u64> {
        let address = fields.get(number.checked_sub(3)?)?.parse().ok()?;
        (address > 1).then_some(address)
    };
    Some(ShownMemory {
        code: (field(26)?, field(27)?),
        stack: field(28)?,
        data: (field(45)?, field(46)?),
        break_start: field(47)?,
        environment: (field(50)?, field(51)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_are_those_of_the_fields() {
        let fields: Vec<_> = (3..=52).map(|number| number.to_string()).collect();
        let stat = format!("1 (a) b) {}\n", fields.join(" "));
        let shown = parse(&stat).expect("all fields");
        assert_eq!(
            (
                shown.code,
                shown.stack,
                shown.data,
                shown.break_start,
                shown.environment
            ),
            ((26, 27), 28, (45, 46), 47, (50, 51))
        );
        // The kernel hides addresses as 0 or 1.
        assert!(parse(&stat.replace(" 26 ", " 1 ")).is_none());
        assert!(parse(&stat.replace(" 51 52", "")).is_none());
        assert!(parse("").is_none());
    }
}
