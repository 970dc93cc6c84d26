//! Where a path leads, through symbolic links.

use std::ffi::OsStr;
use std::path::Path;

use super::file_reader::FileReader;
use super::image::Image;
use super::inode_reader::{Inode, InodeKind};
use super::path_steps::{Step, steps};
use crate::error::{Error, Missing, Result};
use crate::names;

/// Symbolic links that one path may lead through, as on Linux.
const LINKS: usize = 40;

/// Puts the steps of `path` on top of `todo`, the first at the very top.
fn add_steps(todo: &mut Vec<Step<Vec<u8>>>, path: &OsStr) {
    let path = names::to_bytes(path);
    todo.extend(steps(&path).rev().map(|step| match step {
        Step::Root => Step::Root,
        Step::Up => Step::Up,
        Step::Down(name) => Step::Down(name.to_vec()),
    }));
}

impl Image {
    /// The inode that `path` leads to, or none if nothing is there.
    ///
    /// Symbolic links are followed as by a program whose root directory is that of the image. So no
    /// path leads out of the image: a link to `/lib` leads to the image's `lib`, and `..` of the
    /// root is the root.
    ///
    /// [`Image::inode_at`] is the same with an error if nothing is there. [`Image::lookup`] follows
    /// no links.
    ///
    /// # Errors
    ///
    /// `SymlinkLoop` if `path` leads through more than 40 links, `Limit` if it leads through more
    /// directories than [`Limits::depth`](crate::Limits), and those of reading the image.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<Option<Inode>> {
        let path = path.as_ref();
        let mut todo = Vec::new();
        add_steps(&mut todo, path.as_os_str());
        // From the root to where the steps so far lead. All but the last are directories.
        let mut way = vec![self.root()?];
        let mut links = 0;
        while let Some(step) = todo.pop() {
            let Some(InodeKind::Directory(here)) = way.last().map(Inode::kind) else {
                return Ok(None);
            };
            let name = match step {
                Step::Root => {
                    way.truncate(1);
                    continue;
                }
                Step::Up => {
                    way.truncate((way.len() - 1).max(1));
                    continue;
                }
                Step::Down(name) => name,
            };
            let Some(inode) = self.inode_in(here, &name)? else {
                return Ok(None);
            };
            let InodeKind::Symlink(target) = inode.kind() else {
                let limit = self.inner.stored.limits.depth as u64;
                // A damaged image may have a directory in itself.
                if way.len() as u64 > limit {
                    let needs = way.len() as u64;
                    let fault = Error::limit("the depth of directories", needs, limit);
                    return Err(self.name(fault));
                }
                way.push(inode);
                continue;
            };
            if target.is_empty() {
                return Ok(None);
            }
            links += 1;
            if links > LINKS {
                return Err(self.name(Error::symlink_loop(path, LINKS)));
            }
            add_steps(&mut todo, target);
        }
        Ok(way.pop())
    }

    /// The inode that `path` leads to, through symbolic links as in [`Image::resolve`].
    ///
    /// # Errors
    ///
    /// `NotFound` if nothing is there, and those of [`Image::resolve`].
    pub fn inode_at(&self, path: impl AsRef<Path>) -> Result<Inode> {
        let path = path.as_ref();
        self.resolve(path)?
            .ok_or_else(|| self.name(Error::missing(Missing::InImage(path.to_owned()))))
    }

    /// The contents of the file that `path` leads to, through symbolic links as in
    /// [`Image::resolve`].
    ///
    /// # Errors
    ///
    /// `NotFound` if nothing is there, `Input` if it is no file, and those of [`Image::resolve`] and
    /// [`Image::file`].
    pub fn file_at(&self, path: impl AsRef<Path>) -> Result<FileReader> {
        let path = path.as_ref();
        let inode = self.inode_at(path)?;
        match inode.kind() {
            InodeKind::File(_) => self.file(&inode),
            _ => Err(self.name(Error::input(format!(
                "{path:?} is a {} and not a file",
                inode.file_type().name()
            )))),
        }
    }

    /// All bytes of the file that `path` leads to, through symbolic links as in
    /// [`Image::resolve`].
    ///
    /// # Errors
    ///
    /// `NotFound` if nothing is there, and those of [`Image::file_at`] and
    /// [`FileReader::read_to_vec`].
    ///
    /// ```
    /// use brisk_image::{ErrorKind, Image};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("app.img");
    /// # let mut tree = brisk_image::TreeBuilder::new();
    /// # tree.add("version", brisk_image::TreeEntry::file("1.2\n"))?;
    /// # brisk_image::ImageWriter::new().write(&tree.finish(), &path)?;
    /// let image = Image::open(&path)?;
    /// assert_eq!(image.read("version")?, b"1.2\n");
    /// assert_eq!(image.read("licence").unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.file_at(path)?.read_to_vec()
    }
}

#[cfg(all(test, feature = "write"))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::error::ErrorKind;
    use crate::tree::Tree;
    use crate::tree::rules::TreeRules;
    use crate::write::image_writer::ImageWriter;

    /// An image of `usr/lib/libc` and `links`.
    fn image(links: &[(&str, &str)]) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("usr/lib")).unwrap();
        std::fs::write(root.join("usr/lib/libc"), "").unwrap();
        for (link, target) in links {
            symlink(target, root.join(link)).unwrap();
        }
        let tree = Tree::from_directory(&root, &TreeRules::default()).unwrap();
        let path = dir.path().join("image");
        ImageWriter::new().write(&tree, &path).unwrap();
        let bytes = std::fs::read(path).unwrap();
        Image::from_source(bytes, &crate::read::image::OpenOptions::new()).unwrap()
    }

    #[test]
    fn links_lead_to_what_they_lead_to_in_the_image() {
        let image = image(&[
            ("lib", "usr/lib"),
            ("lib64", "/lib"),
            ("usr/lib/self", "libc"),
            ("usr/up", "../../../../usr/./lib//libc"),
            ("root", "/"),
            ("host", "/etc/passwd"),
            ("out", "../../etc/passwd"),
            ("through", "usr/lib/libc/../libc"),
            ("slash", "usr/lib/"),
        ]);
        let libc = image.lookup("usr/lib/libc").unwrap().unwrap();
        let table = [
            ("usr/lib/libc", true),
            ("/usr/lib/libc", true),
            ("lib/libc", true),
            ("lib64/libc", true),
            ("lib64/self", true),
            ("lib64/../lib/self", true),
            ("usr/up", true),
            ("root/root/../lib/libc", true),
            ("../..//lib/libc", true),
            ("slash/libc", true),
            ("host", false),
            ("out", false),
            ("through", false),
            ("lib/libc/libc", false),
            ("lib/none", false),
            ("none/../lib/libc", false),
        ];
        for (path, found) in table {
            let inode = image.resolve(path).unwrap().map(|inode| inode.reference());
            assert_eq!(inode, found.then_some(libc.reference()), "{path}");
        }
        let root = image.resolve("root").unwrap().unwrap();
        assert_eq!(root.reference(), image.root().unwrap().reference());
    }

    #[test]
    fn an_error_says_that_nothing_is_there_or_no_file() {
        let image = image(&[("lib", "usr/lib"), ("gone", "lib/none")]);
        let len = |path| image.file_at(path).map(|file| file.len());
        assert_eq!(len("lib/libc").unwrap(), 0);
        for (path, message) in [
            ("gone", "there is no \"gone\" in the image"),
            ("lib/none", "there is no \"lib/none\" in the image"),
        ] {
            let e = len(path).unwrap_err();
            assert_eq!(
                (e.kind(), e.to_string()),
                (ErrorKind::NotFound, message.into())
            );
            let e = image.inode_at(path).unwrap_err();
            assert_eq!(
                (e.kind(), e.to_string()),
                (ErrorKind::NotFound, message.into())
            );
        }
        let e = len("lib").unwrap_err();
        let message = "\"lib\" is a directory and not a file".to_owned();
        assert_eq!((e.kind(), e.to_string()), (ErrorKind::Input, message));
    }

    #[test]
    fn a_path_leads_through_forty_links_and_no_more() {
        let names: Vec<String> = (0..=40).map(|n| format!("link-{n}")).collect();
        let mut links = vec![("link-0", "usr/lib/libc"), ("a", "b"), ("b", "a")];
        links.extend(names.windows(2).map(|w| (w[1].as_str(), w[0].as_str())));
        let image = image(&links);
        assert!(image.resolve("link-39").unwrap().is_some());
        for path in ["link-40", "a", "a/b"] {
            let e = image.resolve(path).unwrap_err();
            let message = format!(
                "\"{path}\" leads through more than 40 symbolic links, which is the most that are followed; look for links that lead to each other"
            );
            assert_eq!((e.kind(), e.to_string()), (ErrorKind::SymlinkLoop, message));
        }
    }
}
