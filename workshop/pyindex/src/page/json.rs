use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::page_error::PageError;
use super::page_file::PageFile;
use super::upload_time::microseconds;
use crate::project_name::ProjectName;
use crate::table::TableMaker;

/// Adds the files of a page of PEP 691, 700, 592 and 714. No tree of the page is made: each file is added when it is read.
pub(crate) fn add_files(page: &[u8], maker: &mut TableMaker) -> Result<(), PageError> {
    let mut refused = None;
    let mut parser = serde_json::Deserializer::from_slice(page);
    let read = Page {
        maker,
        refused: &mut refused,
    }
    .deserialize(&mut parser)
    .and_then(|()| parser.end());
    match (refused, read) {
        (Some(refused), _) => Err(refused),
        (None, Ok(())) => Ok(()),
        (None, Err(e)) if e.is_eof() => Err(PageError::Cut {
            bytes: page.len(),
            wanted: "more JSON",
        }),
        (None, Err(e)) => {
            let all = e.to_string();
            // The place is said in our own words.
            let why = all.rsplit_once(" at line ").map_or(&*all, |(why, _)| why);
            Err(PageError::Json {
                line: e.line(),
                column: e.column(),
                why: why.chars().take(300).collect(),
            })
        }
    }
}

/// The page. Its visitor's own errors are put aside, for serde carries only texts.
struct Page<'m> {
    maker: &'m mut TableMaker,
    refused: &'m mut Option<PageError>,
}

impl<'de> DeserializeSeed<'de> for Page<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Page<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an index page, which is an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut files = false;
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match &*key.0 {
                "files" => {
                    files = true;
                    map.next_value_seed(Files {
                        maker: self.maker,
                        refused: self.refused,
                    })?;
                }
                "meta" => {
                    let meta: Meta<'de> = map.next_value()?;
                    let version = meta.api_version.0;
                    if version.split('.').next() != Some("1") {
                        *self.refused = Some(PageError::Version {
                            version: version.chars().take(100).collect(),
                        });
                        return Err(A::Error::custom("refused"));
                    }
                }
                "name" => {
                    let name: Text<'de> = map.next_value()?;
                    if !self.maker.project().is(&name.0) {
                        let wanted = self.maker.project().as_str();
                        *self.refused = Some(PageError::OtherProject {
                            wanted: wanted.to_owned(),
                            found: ProjectName::parse(&name.0).map_or_else(
                                |_| name.0.chars().take(100).collect(),
                                |name| name.as_str().to_owned(),
                            ),
                        });
                        return Err(A::Error::custom("refused"));
                    }
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if files {
            Ok(())
        } else {
            Err(A::Error::missing_field("files"))
        }
    }
}

struct Files<'m> {
    maker: &'m mut TableMaker,
    refused: &'m mut Option<PageError>,
}

impl<'de> DeserializeSeed<'de> for Files<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Files<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the files, which are an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while let Some(file) = all.next_element::<JsonFile<'de>>()? {
            if let Err(e) = file.checked().and_then(|file| self.maker.add(&file)) {
                *self.refused = Some(e);
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Meta<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct JsonFile<'a> {
    #[serde(borrow)]
    filename: Text<'a>,
    #[serde(borrow)]
    url: Text<'a>,
    #[serde(borrow)]
    hashes: Hashes<'a>,
    #[serde(borrow, default)]
    requires_python: Option<Text<'a>>,
    #[serde(borrow, default)]
    yanked: Option<Said<'a>>,
    /// PEP 714.
    #[serde(borrow, default)]
    core_metadata: Option<Metadata<'a>>,
    /// PEP 658 had this name for it.
    #[serde(borrow, default)]
    dist_info_metadata: Option<Metadata<'a>>,
    #[serde(default)]
    size: Option<u64>,
    #[serde(borrow, default)]
    upload_time: Option<Text<'a>>,
}

impl<'a> JsonFile<'a> {
    fn checked(self) -> Result<PageFile<'a>, PageError> {
        let mut file = PageFile {
            name: self.filename.0,
            url: self.url.0,
            requires_python: self.requires_python.map(|text| text.0),
            yanked: match self.yanked {
                None | Some(Said::Flag(false)) => None,
                Some(Said::Flag(true)) => Some(Cow::Borrowed("")),
                Some(Said::Reason(reason)) => Some(reason.0),
            },
            size: self.size,
            ..PageFile::default()
        };
        for (algorithm, digest) in self.hashes.0 {
            file.digest(&algorithm.0, &digest.0)?;
        }
        file.metadata = match self.core_metadata.or(self.dist_info_metadata) {
            None | Some(Metadata::Flag(false)) => None,
            Some(Metadata::Flag(true)) => Some(None),
            Some(Metadata::Hashes(hashes)) => {
                let sha256 = hashes
                    .0
                    .iter()
                    .find(|(algorithm, _)| algorithm.0 == "sha256");
                let digest = |digest| file.sha256_of("core-metadata.sha256", digest);
                Some(sha256.map(|(_, value)| digest(&value.0)).transpose()?)
            }
        };
        if let Some(time) = self.upload_time {
            let micros = microseconds(&time.0);
            file.uploaded = Some(micros.ok_or_else(|| {
                file.wrong(
                    "upload-time",
                    &time.0,
                    "a time such as 2024-02-29T12:34:56.789Z",
                )
            })?);
        }
        Ok(file)
    }
}

/// A flag or a text: both are allowed for yanked files.
#[derive(Deserialize)]
#[serde(untagged)]
enum Said<'a> {
    Flag(bool),
    #[serde(borrow)]
    Reason(Text<'a>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Metadata<'a> {
    Flag(bool),
    #[serde(borrow)]
    Hashes(Hashes<'a>),
}

/// A text that stays in the page unless it has escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Seen;
        impl<'de> Visitor<'de> for Seen {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        from.deserialize_str(Seen)
    }
}

/// Digests by algorithm. Mostly there is one.
struct Hashes<'a>(Vec<(Text<'a>, Text<'a>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Hashes<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Seen;
        impl<'de> Visitor<'de> for Seen {
            type Value = Hashes<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("digests, which are an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Hashes<'de>, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = map.next_entry()? {
                    all.push(one);
                }
                Ok(Hashes(all))
            }
        }
        from.deserialize_map(Seen)
    }
}
