use std::io::{self, Write};

use anyhow::{Context, bail};
use data_encoding::HEXLOWER;
use http::StatusCode;
use http::header::CONTENT_ENCODING;
use http_body_util::{BodyExt, Limited};
use pyindex::decoded;
use sha2::{Digest, Sha256};
use url::Url;

use crate::Outcome;
use crate::args::{Common, Metadata};
use crate::best::{plain, wanted};
use crate::environment::Environment;
use crate::indexes::Indexes;
use crate::requirements::Requirement;

/// The longest metadata that are read, in bytes.
const LONGEST: usize = 16 << 20;

/// The file whose metadata are asked for.
struct Chosen {
    name: String,
    url: String,
    has_metadata: bool,
    /// The place of the index that has it.
    index: usize,
    /// Of its metadata, in hexadecimal.
    sha256: Option<String>,
}

/// Prints the metadata of the best file.
pub(crate) fn run(common: &Common, args: &Metadata) -> anyhow::Result<Outcome> {
    let mut environment = Environment::of(&args.target)?;
    let Some(requirement) = Requirement::parse(&args.requirement, &environment.markers)? else {
        bail!(
            "the markers of {:?} do not hold for this Python and platform",
            args.requirement
        );
    };
    let indexes = Indexes::open(common)?;
    let page = indexes
        .pages(&[&requirement.name])?
        .pop()
        .context("no page")??;
    let Some(page) = page else {
        eprintln!(
            "pyindex: no index has the project {}",
            requirement.name.as_str()
        );
        return Ok(Outcome::Missing);
    };
    let wanted = wanted(&args.target, &requirement.specifiers);
    let file = indexes.look(&requirement.name, page, |page| {
        let table = page.view()?;
        let choice = environment.chooser.choose(&table, &wanted)?;
        let file = choice.map(|choice| table.file(choice.version, choice.file));
        // What it does not need may borrow from the page.
        Ok(file.transpose()?.map(|file| Chosen {
            name: file.name,
            url: file.url,
            has_metadata: file.metadata,
            index: page.index(),
            sha256: file.metadata_sha256,
        }))
    })?;
    let Some(file) = file else {
        eprintln!(
            "pyindex: no file of {} will do for {:?}",
            requirement.name.as_str(),
            requirement.text
        );
        return Ok(Outcome::Missing);
    };
    if !file.has_metadata {
        eprintln!(
            "pyindex: the index has no metadata of {} as a file of their own (PEP 658); they are in the file",
            plain(&file.name)
        );
        return Ok(Outcome::Missing);
    }
    let url = format!("{}.metadata", file.url);
    let headers = indexes.headers_for(file.index, &Url::parse(&url)?);
    let text = fetch(&indexes, &url, headers)?;
    if let Some(expected) = &file.sha256 {
        let found = HEXLOWER.encode(&Sha256::digest(&text));
        if found != *expected {
            bail!(
                "{}: its SHA-256 is {found}, and the index says {expected}; tell whoever runs the index",
                plain(&url)
            );
        }
    }
    let mut out = io::stdout().lock();
    match common.json {
        true => {
            let value = serde_json::json!({"url": url, "text": String::from_utf8_lossy(&text)});
            serde_json::to_writer_pretty(&mut out, &value)?;
            writeln!(out)?;
        }
        false => out.write_all(&text)?,
    }
    out.flush()?;
    Ok(Outcome::Found)
}

fn fetch(indexes: &Indexes, url: &str, headers: http::HeaderMap) -> anyhow::Result<Vec<u8>> {
    let fetched = indexes.runtime()?.block_on(async {
        let mut request = http::Request::get(url).body(Default::default())?;
        *request.headers_mut() = headers;
        let response = indexes.client().send(request).await?;
        let status = response.status();
        if status == StatusCode::GATEWAY_TIMEOUT && indexes.is_offline() {
            bail!("it is not stored, and --offline asks nobody");
        }
        if !status.is_success() {
            bail!("the answer is {status}");
        }
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LONGEST).collect().await;
        let body = body.map_err(|e| anyhow::anyhow!("{e}"))?.to_bytes();
        let coding = head.headers.get(CONTENT_ENCODING);
        let coding = coding.and_then(|coding| coding.to_str().ok());
        let text = decoded(coding, &body, LONGEST)?.into_owned();
        indexes.client().idle().await;
        Ok(text)
    });
    fetched.with_context(|| plain(url).into_owned())
}
