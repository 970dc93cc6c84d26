//! A tree to be packed from another image.

use std::collections::HashMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::builder::TreeBuilder;
use super::rules::TreeRules;
use super::{Attributes, FileSource, InodeId, SourceFile, SourceId, Tree, TreeKind};
use crate::error::{Error, Result};
use crate::read::contents_budget::ContentsBudget;
use crate::read::file_reader::FileReader;
use crate::read::image::Image;
use crate::read::inode_reader::{Inode, InodeKind, InodeRef};

impl Tree {
    /// The tree in `image`, as `rules` say.
    ///
    /// # Errors
    ///
    /// Those of reading the image, and `Limit` if the tree has more names, or its files more contents,
    /// than the image's [`Limits`](crate::Limits) allow.
    pub fn from_image(image: &Image, rules: &TreeRules) -> Result<Self> {
        let mut files = Vec::new();
        let mut known: HashMap<InodeRef, InodeId> = HashMap::new();
        // By depth: the directory that the walk is in, none if it was left out. A path of each
        // directory would take memory that grows with the square of the depth.
        let mut parents: Vec<Option<InodeId>> = Vec::new();
        let mut builder: Option<TreeBuilder> = None;
        let contents = ContentsBudget::new(image);
        for entry in image.walk()? {
            let entry = entry?;
            let depth = entry.depth();
            let (path, inode) = entry.into_parts();
            let attributes = rules.apply(&path, inode.is_dir(), attributes(&inode));
            let mut xattrs = image.xattrs(&inode)?;
            contents.add_xattrs(&xattrs)?;
            xattrs.retain(|xattr| matches!(rules.keeps_xattr(xattr.name()), Ok(true)));
            let Some(builder) = &mut builder else {
                parents.push(Some(0));
                builder = Some(TreeBuilder::with_root(attributes, xattrs)?);
                continue;
            };
            parents.truncate(depth);
            let parent = parents.last().copied().flatten();
            let kept = parent.filter(|_| !rules.excludes(&path, inode.is_dir()));
            let (Some(parent), Some(name)) = (kept, path.file_name()) else {
                if inode.is_dir() {
                    parents.push(None);
                }
                continue;
            };
            let id = match known.get(&inode.reference()) {
                Some(&id) => {
                    // A rule that matches any of its names applies to the file.
                    let known = builder.attributes(id);
                    *known = rules.apply(&path, inode.is_dir(), *known);
                    id
                }
                None => {
                    if let InodeKind::File(file) = inode.kind() {
                        contents.add_file(file)?;
                    }
                    let kind = kind(image, &inode, &mut files)?;
                    let id = builder.add_inode(attributes, xattrs, kind)?;
                    known.insert(inode.reference(), id);
                    id
                }
            };
            builder.link(parent, name.as_bytes(), id);
            if inode.is_dir() {
                parents.push(Some(id));
            }
        }
        let builder = builder.ok_or_else(|| Error::input("the image has no root"))?;
        Ok(builder.finish_with(Box::new(ImageSource {
            image: image.clone(),
            files,
        })))
    }
}

fn attributes(inode: &Inode) -> Attributes {
    Attributes {
        permissions: inode.permissions(),
        uid: inode.uid(),
        gid: inode.gid(),
        mtime: inode.mtime(),
    }
}

fn kind(image: &Image, inode: &Inode, files: &mut Vec<InodeRef>) -> Result<TreeKind> {
    Ok(match inode.kind() {
        InodeKind::Directory(_) => TreeKind::Directory(Vec::new()),
        InodeKind::File(file) => {
            // The image holds at most 2^32 - 1 inodes.
            let source = SourceId::try_from(files.len()).map_err(|_| {
                image.name(Error::limit(
                    "the number of files",
                    files.len() as u64,
                    u32::MAX.into(),
                ))
            })?;
            files.push(inode.reference());
            TreeKind::File {
                len: file.len(),
                source,
            }
        }
        InodeKind::Symlink(target) => TreeKind::Symlink(target.clone().into_vec().into()),
        InodeKind::BlockDevice(device) => TreeKind::BlockDevice(*device),
        InodeKind::CharDevice(device) => TreeKind::CharDevice(*device),
        InodeKind::Fifo => TreeKind::Fifo,
        InodeKind::Socket => TreeKind::Socket,
    })
}

struct ImageSource {
    image: Image,
    files: Vec<InodeRef>,
}

impl FileSource for ImageSource {
    fn open(&self, file: SourceId) -> Result<Box<dyn SourceFile + Send + '_>> {
        let inode = self.image.inode(self.files[file as usize])?;
        Ok(Box::new(self.image.file(&inode)?))
    }

    fn image(&self) -> Option<&Image> {
        Some(&self.image)
    }
}

impl SourceFile for FileReader {
    fn read_exact_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let n = self.read_at(offset, buf)?;
        if n < buf.len() {
            return Err(Error::changed(
                "length",
                offset.saturating_add(buf.len() as u64),
                self.len(),
            ));
        }
        Ok(())
    }

    fn is_hole(&mut self, offset: u64, len: u64) -> Result<bool> {
        Ok(self.is_sparse(offset, len))
    }

    fn check_unchanged(&mut self) -> Result<()> {
        Ok(())
    }

    fn stored(&self) -> Option<&FileReader> {
        Some(self)
    }
}
