//! The text of a profile: JSON, one step on each line. `docs/profile-format.md` describes it.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{
    Asked, LookUp, PageRange, Profile, ProfileDirectory, ProfileFile, Ready, Root, RootKind, Step,
};
use crate::error::{Corrupt, Error, Location, Result, Unsupported};
use crate::output::{Output, OutputFile};
use crate::read::limits::Limits;

/// The version of the text that is written, and the only one that is read.
const VERSION: u64 = 1;

/// Bytes in memory, at most, for each byte of the text. The shortest directory has 8 bytes of text,
/// and takes 32 in a list that has up to three times its length while it grows, 32 for its name, and
/// an entry in an index.
const GROWTH: u64 = 32;

/// Whether reading `text` takes no more than is allowed.
fn check_len(text: &[u8], limits: &Limits) -> Result<()> {
    let needs = (text.len() as u64).saturating_mul(GROWTH);
    match needs > limits.memory {
        true => Err(Error::limit("a profile", needs, limits.memory)),
        false => Ok(()),
    }
}

impl Profile {
    /// Reads the profile in the file at `path`.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be read, `Corrupt` with the line or the entry that breaks the format,
    /// `Unsupported` for another version, and `Limit` if it needs more than
    /// [`Limits::memory`](crate::Limits).
    pub fn open(path: impl AsRef<Path>, limits: &Limits) -> Result<Self> {
        let path = path.as_ref();
        let read = || {
            let file = File::open(path).map_err(|e| Error::io("open the profile", e))?;
            Self::from_reader(file, limits)
        };
        read().map_err(|e: Error| e.with_path(path))
    }

    /// Reads the profile that `reader` has up to its end. It may have no end: no more is read than
    /// [`Limits::memory`](crate::Limits) allows.
    ///
    /// # Errors
    ///
    /// As [`Profile::open`].
    pub fn from_reader(reader: impl Read, limits: &Limits) -> Result<Self> {
        let most = limits.memory / GROWTH;
        let mut text = Vec::new();
        reader
            .take(most.saturating_add(1))
            .read_to_end(&mut text)
            .map_err(|e| Error::io("read the profile", e))?;
        Self::from_text(&text, limits)
    }

    /// The profile that `text` describes.
    pub fn from_text(text: &[u8], limits: &Limits) -> Result<Self> {
        check_len(text, limits)?;
        let wire: Result<Wire, _> = serde_json::from_slice(text);
        let version = match &wire {
            Ok(wire) => wire.brisk_profile,
            // A later version may have what this one has no words for.
            Err(_) => {
                let head: Head = serde_json::from_slice(text).map_err(|e| syntax(&e))?;
                head.brisk_profile
            }
        };
        if version != VERSION {
            return Err(Error::unsupported(Unsupported::Other(format!(
                "profile version {version} is not supported, only {VERSION} is; \
                 record it again, or use the brisk that wrote it"
            ))));
        }
        let profile = wire.map_err(|e| syntax(&e))?.into_profile();
        profile.check_invariants()?;
        Ok(profile)
    }

    /// Writes the text to a new file at `path`, which replaces a file of that name when it is
    /// complete.
    ///
    /// # Errors
    ///
    /// `Io` for what the system refuses, and `Limit` if the text is longer than
    /// [`Limits::of_profiles`] allows a reader.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let text = self.to_text();
        check_len(&text, &Limits::of_profiles()).map_err(|e| e.with_path(path))?;
        let mut out = OutputFile::create(path)?;
        out.append(&text)?;
        out.finish()
    }

    /// The text: the same profile gives the same bytes.
    pub fn to_text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut line =
            |text: fmt::Arguments<'_>| out.extend_from_slice(text.to_string().as_bytes());
        let command: Vec<_> = self
            .command
            .iter()
            .map(|word| quoted(word.as_bytes()))
            .collect();
        line(format_args!("{{\n\"brisk_profile\": {VERSION},\n"));
        line(format_args!(
            "\"brisk\": {},\n",
            quoted(self.brisk.as_bytes())
        ));
        line(format_args!("\"command\": [{}],\n", command.join(", ")));
        line(format_args!("\"runs\": {},\n", self.runs));
        if let Some(Ready { by, at }) = &self.ready {
            line(format_args!(
                "\"ready\": [{}, {at}],\n",
                quoted(by.as_bytes())
            ));
        }
        let path = |path: &Path| quoted(path.as_os_str().as_bytes());
        let roots = self.roots.iter();
        let roots =
            roots.map(|Root { path: at, kind }| format!("[{}, \"{}\"]", path(at), kind.name()));
        line(format_args!("{},\n", list("roots", roots)));
        let files = self.files.iter().map(|file| {
            let digest = file.digest.map_or("null".to_owned(), |digest| {
                format!("\"{}\"", blake3::Hash::from_bytes(digest).to_hex())
            });
            format!(
                "[{}, {}, {}, {digest}]",
                file.root,
                path(&file.path),
                file.len
            )
        });
        line(format_args!("{},\n", list("files", files)));
        let directories = self.directories.iter();
        let directories = directories.map(|d| format!("[{}, {}]", d.root, path(&d.path)));
        line(format_args!("{},\n", list("directories", directories)));
        let steps = self
            .steps
            .iter()
            .map(|Step { asked, at, runs }| match asked {
                Asked::Pages(PageRange { file, first, count }) => {
                    format!("[\"pages\", {file}, {first}, {count}, {at}, {runs}]")
                }
                Asked::LookUp(look_up) => format!(
                    "[\"{}\", {}, {}, {at}, {runs}]",
                    if look_up.found { "found" } else { "absent" },
                    look_up.directory,
                    quoted(look_up.name.as_bytes())
                ),
            });
        line(format_args!("{}\n}}\n", list("steps", steps)));
        out
    }
}

fn list(name: &str, items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    match items.is_empty() {
        true => format!("\"{name}\": []"),
        false => format!("\"{name}\": [\n{}\n]", items.join(",\n")),
    }
}

/// A name as it stands in the text: a string, or an object with its bytes if it is no UTF-8.
fn quoted(name: &[u8]) -> String {
    use std::fmt::Write;
    match std::str::from_utf8(name) {
        Ok(text) => serde_json::Value::from(text).to_string(),
        Err(_) => {
            let mut text = "{\"hex\": \"".to_owned();
            for byte in name {
                // Writing to a string cannot fail.
                let written = write!(text, "{byte:02x}");
                debug_assert!(written.is_ok());
            }
            text + "\"}"
        }
    }
}

fn syntax(e: &serde_json::Error) -> Error {
    let (line, column) = (e.line(), e.column());
    let reason = e.to_string();
    // Where it is is said once.
    let location = format!(" at line {line} column {column}");
    let reason = reason.strip_suffix(&location).unwrap_or(&reason).to_owned();
    Error::corrupt(Location::Line { line, column }, Corrupt::Text { reason }).about("profile")
}

#[derive(serde::Deserialize)]
struct Head {
    brisk_profile: u64,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    brisk_profile: u64,
    brisk: String,
    command: Vec<Name>,
    runs: u32,
    #[serde(default)]
    ready: Option<(String, u64)>,
    roots: Vec<(Name, Kind)>,
    files: Vec<(u32, Name, u64, Option<Digest>)>,
    directories: Vec<(u32, Name)>,
    steps: Vec<Step>,
}

impl Wire {
    fn into_profile(self) -> Profile {
        let root = |(path, kind): (Name, Kind)| Root {
            path: path.into_path(),
            kind: kind.0,
        };
        let file = |(root, path, len, digest): (u32, Name, u64, Option<Digest>)| ProfileFile {
            root,
            path: path.into_path(),
            len,
            digest: digest.map(|digest| digest.0),
        };
        let directory = |(root, path): (u32, Name)| ProfileDirectory {
            root,
            path: path.into_path(),
        };
        Profile {
            brisk: self.brisk,
            command: self.command.into_iter().map(|word| word.0).collect(),
            runs: self.runs,
            ready: self.ready.map(|(by, at)| Ready { by, at }),
            roots: self.roots.into_iter().map(root).collect(),
            files: self.files.into_iter().map(file).collect(),
            directories: self.directories.into_iter().map(directory).collect(),
            steps: self.steps,
        }
    }
}

/// Any bytes: a string, or `{"hex": "…"}`.
struct Name(OsString);

impl Name {
    fn into_path(self) -> PathBuf {
        self.0.into()
    }
}

const NAME: &str = "a string, or {\"hex\": \"…\"}";

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(NAME)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Name, E> {
                Ok(Name(text.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Name, A::Error> {
                let name = match map.next_entry::<String, String>()? {
                    Some((key, digits)) if key == "hex" => bytes_of_hex(&digits),
                    _ => None,
                };
                match (name, map.next_key::<IgnoredAny>()?) {
                    (Some(name), None) => Ok(Name(OsString::from_vec(name))),
                    _ => Err(de::Error::custom(format!(
                        "a name is another object, allowed is {NAME}"
                    ))),
                }
            }
        }
        from.deserialize_any(NameVisitor)
    }
}

fn bytes_of_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let value = |digit: u8| {
        char::from(digit)
            .to_digit(16)
            .and_then(|n| u8::try_from(n).ok())
    };
    let (pairs, rest) = digits.as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some(value(*high)? << 4 | value(*low)?);
    match rest {
        [] => pairs.iter().map(byte).collect(),
        _ => None,
    }
}

struct Kind(RootKind);

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        RootKind::from_name(&name).map(Kind).ok_or_else(|| {
            de::Error::custom(format!(
                "kind of root is {name:?}, allowed is directory, image or system"
            ))
        })
    }
}

struct Digest([u8; 32]);

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let digits = String::deserialize(from)?;
        let bytes = bytes_of_hex(&digits).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Digest).ok_or_else(|| {
            de::Error::custom(format!(
                "digest is {digits:?}, allowed is 64 hexadecimal digits"
            ))
        })
    }
}

enum StepKind {
    Pages,
    LookUp { found: bool },
}

impl<'de> Deserialize<'de> for StepKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct KindVisitor;
        impl Visitor<'_> for KindVisitor {
            type Value = StepKind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<StepKind, E> {
                match name {
                    "pages" => Ok(StepKind::Pages),
                    "found" => Ok(StepKind::LookUp { found: true }),
                    "absent" => Ok(StepKind::LookUp { found: false }),
                    _ => Err(de::Error::custom(format!(
                        "kind of step is {name:?}, allowed is pages, found or absent"
                    ))),
                }
            }
        }
        from.deserialize_str(KindVisitor)
    }
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct StepVisitor;
        impl<'de> Visitor<'de> for StepVisitor {
            type Value = Step;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step: [\"pages\", file, first, count, time, runs], or [\"found\" or \"absent\", directory, name, time, runs]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Step, A::Error> {
                let kind: StepKind = next(&mut seq, 0)?;
                let (asked, used) = match kind {
                    StepKind::Pages => {
                        let (file, first) = (next(&mut seq, 1)?, next(&mut seq, 2)?);
                        let count = next(&mut seq, 3)?;
                        (Asked::Pages(PageRange { file, first, count }), 4)
                    }
                    StepKind::LookUp { found } => {
                        let directory = next(&mut seq, 1)?;
                        let Name(name) = next(&mut seq, 2)?;
                        (
                            Asked::LookUp(LookUp {
                                directory,
                                name,
                                found,
                            }),
                            3,
                        )
                    }
                };
                let (at, runs) = (next(&mut seq, used)?, next(&mut seq, used + 1)?);
                match seq.next_element::<IgnoredAny>()? {
                    None => Ok(Step { asked, at, runs }),
                    Some(_) => Err(de::Error::invalid_length(used + 3, &self)),
                }
            }
        }

        fn next<'de, A: SeqAccess<'de>, T: Deserialize<'de>>(
            seq: &mut A,
            index: usize,
        ) -> Result<T, A::Error> {
            let missing = || de::Error::invalid_length(index, &StepVisitor);
            seq.next_element()?.ok_or_else(missing)
        }
        from.deserialize_seq(StepVisitor)
    }
}
