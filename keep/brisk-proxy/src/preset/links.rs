//! Where the links of a page lead.

use url::Url;

use crate::file_hosts::FileHosts;
use crate::map::{Map, Maps};
use crate::stated::Stated;

/// The most bytes of a page, and of its form: links can grow.
pub const MOST_PAGE_BYTES: usize = 128 << 20;

/// Why a page has no form for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable(pub &'static str);

/// Where the links of a page lead.
pub struct Links<'a> {
    /// The map that the page is of.
    pub map: &'a Map,
    /// All maps.
    pub maps: &'a Maps,
    /// Signs hosts that have no map.
    pub hosts: &'a FileHosts,
    /// The URL of the page.
    pub page: Url,
    /// Its path at the proxy.
    pub path: &'a str,
    /// The URL of the proxy, without a slash at its end, where links must be whole URLs.
    pub proxy: &'a str,
}

impl Links<'_> {
    /// The path at the proxy of a URL. None: the client goes there itself.
    pub(super) fn path_of(&self, url: &Url) -> Option<String> {
        let mapped = self.maps.path_of(url);
        mapped.or_else(|| self.hosts.path_of(self.map, url))
    }

    /// What stands in place of a link that is relative to `base`. None: it stays as it is. `stated` is the digest of the file
    /// that it leads to.
    pub(super) fn replacement(
        &self,
        base: &Url,
        link: &str,
        stated: Option<&Stated>,
    ) -> Option<String> {
        let url = base.join(link).ok()?;
        let path = self.path_of(&url)?;
        if let Some(stated) = stated {
            return Some(stated.prefix() + &path);
        }
        // Most links of most pages lead to the same place from here as from there.
        let is_relative = !link.starts_with('/') && Url::parse(link).is_err();
        let from_here = || {
            let own = Url::parse("http://proxy.invalid").ok()?;
            let joined = own.join(self.path).ok()?.join(link).ok()?;
            Some(joined.as_str().strip_prefix("http://proxy.invalid")? == path)
        };
        if is_relative && *base == self.page && from_here() == Some(true) {
            return None;
        }
        Some(path)
    }

    /// What stands in place of a link that must be a whole URL.
    pub(super) fn whole_replacement(&self, link: &str, stated: Option<&Stated>) -> Option<String> {
        let url = self.page.join(link).ok()?;
        let stated = stated.map_or_else(String::new, Stated::prefix);
        Some(format!("{}{stated}{}", self.proxy, self.path_of(&url)?))
    }
}

/// Adds to a form, which has at most so many bytes.
pub(super) fn add(form: &mut Vec<u8>, bytes: &[u8], most: usize) -> Result<(), Unreadable> {
    if form.len().saturating_add(bytes.len()) > most {
        return Err(Unreadable(
            "it would have more than 128 MiB with links through this proxy",
        ));
    }
    form.extend_from_slice(bytes);
    Ok(())
}

/// Links of a page at this URL and this path, for a test. The page is of the first map.
#[cfg(test)]
pub(super) fn with_links<R>(
    maps: &[&str],
    (page, path): (&str, &str),
    proxy: &str,
    work: impl FnOnce(&Links<'_>) -> R,
) -> R {
    let directory = tempfile::tempdir().unwrap();
    let secret = crate::secret::Secret::of_directory(directory.path()).unwrap();
    let maps: Vec<Map> = maps.iter().map(|map| Map::parse(map).unwrap()).collect();
    work(&Links {
        map: &maps[0],
        maps: &Maps::new(maps.clone()).unwrap(),
        hosts: &FileHosts::new(secret),
        page: Url::parse(page).unwrap(),
        path,
        proxy,
    })
}
