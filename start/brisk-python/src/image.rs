//! Images, as Python programs have them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use brisk_image::{Image as OpenImage, Inode, InodeKind};
use brisk_remote::RemoteUrl;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyString, PyTuple};
use rustix::io::Errno;

use crate::batch::read_many;
use crate::fault::Fault;
use crate::image_path::{ImagePath, Name, fspath};
use crate::object::FileObject;
use crate::per_process::PerProcess;
use crate::reader::{self, Reader};
use crate::remote::{RemoteSource, Trust, Wanted};
use crate::source::Source;

/// A SquashFS image, whose files are read without mounting it.
///
/// `source` is a path, a URL (https, http, oci, s3), or a binary file object that can seek. An image on the network is what the root hash
/// behind `#sha256=` says. Else one of the keys in `trust` must have signed it: a file, several, or `True` for those that are installed.
/// Without `trust`, it is what a server says by https; `insecure` believes a server by plain http, too.
///
/// `refresh` asks the server for the newest image first, and not beside. `variant` says which is wanted of several under one name in a
/// registry.
///
/// Paths are text, bytes, or objects with `__fspath__`, from the root whether they start with a slash or not. Symbolic links are
/// followed, and none leads out of the image. Iterating gives the paths of all that is no directory.
///
/// Threads can share an image. A process that was forked opens it anew, and a pickle has what it was opened from.
#[pyclass(frozen, subclass, weakref, module = "brisk._brisk")]
pub struct Image {
    source: Source,
    /// What a pickle has: an absolute path, a URL, or a file object.
    given: Py<PyAny>,
    /// What a pickle has, too.
    options: Py<PyDict>,
    /// For messages.
    name: String,
    bytes_used: u64,
    open: PerProcess<OpenImage>,
}

impl Image {
    /// The image, as this process has opened it.
    pub fn opened(&self, py: Python<'_>) -> Result<OpenImage, Fault> {
        let closed = || Fault::Misuse("I/O operation on closed image".to_owned());
        let opened = self.open.get(py, || self.source.open_again())?;
        opened.ok_or_else(closed)
    }

    /// Bytes of the image.
    pub fn bytes_used(&self) -> u64 {
        self.bytes_used
    }

    /// The exception about `path` of this image.
    pub fn raise(&self, py: Python<'_>, fault: Fault, path: Option<&Bound<'_, PyAny>>) -> PyErr {
        fault.raise(py, &self.name, path)
    }

    /// Does `work` about `path` without Python's lock.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        path: &ImagePath<'_>,
        work: impl FnOnce(&OpenImage, &Path) -> Result<T, Fault> + Send,
    ) -> PyResult<T> {
        let place = path.path();
        self.opened(py)
            .and_then(|image| py.detach(|| work(&image, place)))
            .map_err(|fault| self.raise(py, fault, Some(&path.given)))
    }

    /// The paths of all that is no directory, relative to the root.
    fn files(&self, py: Python<'_>) -> PyResult<Vec<OsString>> {
        let found = |image: &OpenImage| {
            let mut files = Vec::new();
            for entry in image.walk()? {
                let (path, inode) = entry?.into_parts();
                if !inode.is_dir() {
                    files.push(path.into_os_string());
                }
            }
            Ok(files)
        };
        self.opened(py)
            .and_then(|image| py.detach(|| found(&image)))
            .map_err(|fault| self.raise(py, fault, None))
    }
}

#[pymethods]
impl Image {
    #[new]
    #[pyo3(signature = (source, *, trust = None, insecure = false, refresh = false, variant = None))]
    fn new(
        source: &Bound<'_, PyAny>,
        trust: Option<&Bound<'_, PyAny>>,
        insecure: bool,
        refresh: bool,
        variant: Option<String>,
    ) -> PyResult<Self> {
        let py = source.py();
        let trust = Trust::extract(trust)?;
        let options = PyDict::new(py);
        options.set_item("trust", trust.given(py)?)?;
        options.set_item("insecure", insecure)?;
        options.set_item("refresh", refresh)?;
        options.set_item("variant", &variant)?;
        let wanted = Wanted {
            trust,
            insecure,
            refresh,
            variant,
        };
        let is_object = source.hasattr("read")? && !source.hasattr("__fspath__")?;
        let plain = if is_object {
            source.clone()
        } else {
            fspath(source)?
        };
        let text = plain.cast::<PyString>().ok().filter(|text| {
            text.to_str()
                .is_ok_and(|text| RemoteUrl::is_url(text.as_ref()))
        });
        if text.is_none() {
            wanted.refuse_without_url()?;
        }
        let (name, given, opened) = if is_object {
            let name = source
                .getattr("name")
                .and_then(|name| name.extract())
                .unwrap_or_else(|_| "the file object".to_owned());
            let object = FileObject::new(plain.clone().unbind());
            (name, plain, py.detach(|| Source::open_object(object)))
        } else if let Some(text) = text {
            let url = RemoteUrl::of_user(text.to_str()?);
            let url = url.map_err(|e| Fault::from(e).raise(py, "", None))?;
            // Without the signature, if it has one.
            let name = url.as_str().to_owned();
            let fetcher: Option<PathBuf> = py
                .import("brisk._programs")?
                .call_method1("program", ("brisk-fetch",))?
                .extract()?;
            let opened = py.detach(|| RemoteSource::open(&url, fetcher, wanted));
            let opened = opened.map(|(remote, open)| (Source::Remote(Box::new(remote)), open));
            (name, plain.clone(), opened)
        } else {
            let path = ImagePath::extract(plain.as_borrowed())?;
            let absolute = py.import("os.path")?.call_method1("abspath", (&plain,))?;
            let place = path.path();
            let opened = py.detach(|| Source::open_file(place));
            (place.display().to_string(), absolute, opened)
        };
        let (source, open) = opened.map_err(|fault| fault.raise(py, &name, None))?;
        Ok(Self {
            source,
            given: given.unbind(),
            options: options.unbind(),
            name,
            bytes_used: open.bytes_used(),
            open: PerProcess::new(open),
        })
    }

    /// Pickled by what it was opened from.
    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let options = self.options.bind(py).copy()?;
        Ok((PyTuple::new(py, [&self.given])?, options))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = if self.open.is_closed(py) {
            " closed"
        } else {
            ""
        };
        format!("<brisk.Image {:?}{state}>", self.name)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    /// Lets the image go. Later calls raise `ValueError`. Files that are open stay open.
    fn close(&self, py: Python<'_>) {
        self.open.close(py);
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.open.is_closed(py)
    }

    /// All bytes of a file.
    fn read<'py>(&self, py: Python<'py>, path: ImagePath<'py>) -> PyResult<Bound<'py, PyBytes>> {
        /// A file that was read at once, or one to be read into the bytes that Python gets.
        enum Found {
            Bytes(Vec<u8>),
            File(brisk_image::FileReader),
        }
        let found = self.run(py, &path, |image, place| {
            let (_, file) = reader::file_at(image, place)?;
            match file.len() <= reader::SMALL as u64 {
                true => Ok(Found::Bytes(file.read_to_vec()?)),
                false => Ok(Found::File(file)),
            }
        })?;
        match found {
            Found::Bytes(bytes) => Ok(PyBytes::new(py, &bytes)),
            Found::File(file) => reader::read(py, &file, 0, file.len(), self.bytes_used)
                .map_err(|fault| self.raise(py, fault, Some(&path.given))),
        }
    }

    /// All bytes of each of these files, in their order. Several threads read them, all without Python's lock.
    fn read_many<'py>(
        &self,
        py: Python<'py>,
        paths: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        if paths.extract::<ImagePath<'_>>().is_ok() {
            let text = "paths is one path: read_many takes several, read takes one";
            return Err(PyTypeError::new_err(text));
        }
        let paths: Vec<ImagePath<'_>> = paths
            .try_iter()?
            .map(|path| path?.extract())
            .collect::<PyResult<_>>()?;
        let places: Vec<&Path> = paths.iter().map(ImagePath::path).collect();
        let image = self
            .opened(py)
            .map_err(|fault| self.raise(py, fault, None))?;
        let sum = AtomicU64::new(0);
        let read_one = |path: &Path| reader::read_whole(&image, path, &sum);
        let read = py.detach(|| read_many(&places, read_one));
        let read = read
            .map_err(|(at, fault)| self.raise(py, fault, paths.get(at).map(|path| &path.given)))?;
        PyList::new(py, read.into_iter().map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Fills `buffer` with the bytes of a file from `offset` on, and returns how many: fewer only at the end.
    #[pyo3(signature = (path, buffer, offset = 0))]
    fn readinto(
        &self,
        py: Python<'_>,
        path: ImagePath<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: u64,
    ) -> PyResult<usize> {
        let (_, file) = self.run(py, &path, reader::file_at)?;
        reader::read_into(py, &file, buffer, offset)
            .map_err(|fault| self.raise(py, fault, Some(&path.given)))
    }

    /// What `brisk.File` reads from.
    fn _reader(slf: &Bound<'_, Self>, path: ImagePath<'_>) -> PyResult<Reader> {
        let (inode, file) = slf.get().run(slf.py(), &path, reader::file_at)?;
        Ok(Reader::new(
            slf.clone().unbind(),
            path.given.unbind(),
            inode,
            file,
        ))
    }

    /// The names in a directory, in the order of their bytes.
    #[pyo3(signature = (path = None))]
    fn ls(&self, py: Python<'_>, path: Option<ImagePath<'_>>) -> PyResult<Vec<Name>> {
        let path = or_root(py, path)?;
        let names = self.run(py, &path, |image, place| {
            let directory = directory(image, place)?;
            let mut names = Vec::new();
            for entry in image.read_dir(&directory)? {
                names.push(entry?.name().to_owned());
            }
            Ok(names)
        })?;
        Ok(names.iter().map(|name| path.name(name)).collect())
    }

    /// The names in a directory, each with what `stat` says of it. Links are not followed.
    #[pyo3(signature = (path = None))]
    fn scandir<'py>(
        &self,
        py: Python<'py>,
        path: Option<ImagePath<'_>>,
    ) -> PyResult<Vec<(Name, Bound<'py, PyAny>)>> {
        let path = or_root(py, path)?;
        let entries = self.run(py, &path, |image, place| {
            let directory = directory(image, place)?;
            let mut entries = Vec::new();
            for entry in image.read_dir(&directory)? {
                let entry = entry?;
                entries.push((
                    entry.name().to_owned(),
                    Stat::of(&image.entry_inode(&entry)?),
                ));
            }
            Ok(entries)
        })?;
        entries
            .into_iter()
            .map(|(name, stat)| Ok((path.name(&name), stat.into_pyobject(py)?)))
            .collect()
    }

    /// All directories at and below `top`, as `os.walk` has them: path, names of directories, other names.
    #[pyo3(signature = (top = None))]
    fn walk<'py>(
        &self,
        py: Python<'py>,
        top: Option<ImagePath<'_>>,
    ) -> PyResult<Bound<'py, PyIterator>> {
        let top = or_root(py, top)?;
        let walked = self.run(py, &top, walk)?;
        let named =
            |names: Vec<OsString>| names.iter().map(|name| top.name(name)).collect::<Vec<_>>();
        let triples = walked.into_iter().map(|at| {
            (
                top.name(at.path.as_os_str()),
                named(at.directories),
                named(at.others),
            )
        });
        triples.collect::<Vec<_>>().into_pyobject(py)?.try_iter()
    }

    /// What is at a path, as `os.stat` says it. The device is 0.
    #[pyo3(signature = (path, *, follow_symlinks = true))]
    fn stat<'py>(
        &self,
        py: Python<'py>,
        path: ImagePath<'_>,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let stat = self.run(py, &path, |image, place| {
            let inode = match follow_symlinks {
                true => found(image, place)?,
                false => found_itself(image, place)?,
            };
            Ok(Stat::of(&inode))
        })?;
        stat.into_pyobject(py)
    }

    /// What a symbolic link says.
    fn readlink(&self, py: Python<'_>, path: ImagePath<'_>) -> PyResult<Name> {
        let target = self.run(py, &path, |image, place| {
            match found_itself(image, place)?.kind() {
                InodeKind::Symlink(target) => Ok(target.clone()),
                _ => Err(Fault::System(
                    Errno::INVAL,
                    "it is no symbolic link".to_owned(),
                )),
            }
        })?;
        Ok(path.name(&target))
    }

    /// Whether something is at a path, through symbolic links.
    fn exists(&self, py: Python<'_>, path: ImagePath<'_>) -> PyResult<bool> {
        self.run(py, &path, |image, place| {
            Ok(resolved(image, place)?.is_some())
        })
    }

    /// Whether a directory is at a path, through symbolic links.
    fn isdir(&self, py: Python<'_>, path: ImagePath<'_>) -> PyResult<bool> {
        self.run(py, &path, |image, place| {
            Ok(resolved(image, place)?.is_some_and(|inode| inode.is_dir()))
        })
    }

    /// Whether a regular file is at a path, through symbolic links.
    fn isfile(&self, py: Python<'_>, path: ImagePath<'_>) -> PyResult<bool> {
        self.run(py, &path, |image, place| {
            Ok(resolved(image, place)?.is_some_and(|inode| inode.is_file()))
        })
    }

    fn __contains__(&self, py: Python<'_>, path: ImagePath<'_>) -> PyResult<bool> {
        self.exists(py, path)
    }

    /// The paths of all that is no directory, without a slash at the front.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.files(py)?.into_pyobject(py)?.try_iter()
    }

    /// How many paths there are.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.files(py)?.len())
    }

    /// An image is true even if it is empty, and nobody walks through it to know that.
    fn __bool__(&self) -> bool {
        true
    }
}

fn or_root<'py>(py: Python<'py>, path: Option<ImagePath<'py>>) -> PyResult<ImagePath<'py>> {
    match path {
        Some(path) => Ok(path),
        None => PyString::new(py, "/").as_any().extract(),
    }
}

/// What `path` leads to, if something is there. Links in a circle lead to nothing.
fn resolved(image: &OpenImage, path: &Path) -> Result<Option<Inode>, Fault> {
    match image.resolve(path) {
        Err(e) if e.kind() == brisk_image::ErrorKind::SymlinkLoop => Ok(None),
        resolved => Ok(resolved?),
    }
}

/// What `path` leads to.
pub fn found(image: &OpenImage, path: &Path) -> Result<Inode, Fault> {
    let inode = image.resolve(path)?;
    inode.map_or_else(|| Err(absent(image, path)?), Ok)
}

/// What is at `path`, of which only what leads there is followed.
fn found_itself(image: &OpenImage, path: &Path) -> Result<Inode, Fault> {
    let Some(name) = path.file_name() else {
        return found(image, path);
    };
    let parent = directory(image, path.parent().unwrap_or(Path::new("")))?;
    match image.lookup_in(&parent, name)? {
        Some(entry) => Ok(image.entry_inode(&entry)?),
        None => Err(absent(image, path)?),
    }
}

/// Why nothing is at `path`: as the system says it, something on the way is no directory, or is not there.
fn absent(image: &OpenImage, path: &Path) -> Result<Fault, Fault> {
    for above in path.ancestors().skip(1) {
        if let Some(inode) = image.resolve(above)? {
            if !inode.is_dir() {
                let text = format!("{above:?} is no directory");
                return Ok(Fault::System(Errno::NOTDIR, text));
            }
            break;
        }
    }
    Ok(Fault::System(
        Errno::NOENT,
        "no such file or directory in the image".to_owned(),
    ))
}

/// The directory that `path` leads to.
fn directory(image: &OpenImage, path: &Path) -> Result<Inode, Fault> {
    let inode = found(image, path)?;
    match inode.is_dir() {
        true => Ok(inode),
        false => Err(Fault::System(
            Errno::NOTDIR,
            "it is no directory".to_owned(),
        )),
    }
}

/// A directory that a walk has seen.
struct Walked {
    path: PathBuf,
    directories: Vec<OsString>,
    others: Vec<OsString>,
}

/// All directories at and below `top`, each before what is in it.
fn walk(image: &OpenImage, top: &Path) -> Result<Vec<Walked>, Fault> {
    let start = directory(image, top)?;
    let mut walked: Vec<Walked> = Vec::new();
    // Which of them the walk is in.
    let mut inside: Vec<usize> = Vec::new();
    for entry in image.walk_from(top.to_owned(), start) {
        let entry = entry?;
        inside.truncate(entry.depth());
        let is_dir = entry.inode().is_dir();
        let parent = inside.last().and_then(|&at| walked.get_mut(at));
        if let (Some(parent), Some(name)) = (parent, entry.path().file_name()) {
            let names = if is_dir {
                &mut parent.directories
            } else {
                &mut parent.others
            };
            names.push(name.to_owned());
        }
        if is_dir {
            inside.push(walked.len());
            walked.push(Walked {
                path: entry.path().to_owned(),
                directories: Vec::new(),
                others: Vec::new(),
            });
        }
    }
    Ok(walked)
}

/// What an inode says, as `os.stat_result` takes it.
struct Stat([u64; 10]);

impl Stat {
    fn of(inode: &Inode) -> Self {
        let kind = inode.file_type().mode_bits();
        let mode = kind | u32::from(inode.permissions());
        let (links, user, group) = (inode.nlink(), inode.uid(), inode.gid());
        let (number, time) = (inode.number(), inode.mtime());
        let [mode, number, links, user, group, time] =
            [mode, number, links, user, group, time].map(u64::from);
        Self([
            mode,
            number,
            0,
            links,
            user,
            group,
            inode.len(),
            time,
            time,
            time,
        ])
    }

    fn into_pyobject(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        static RESULT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        RESULT
            .import(py, "os", "stat_result")?
            .call1((PyTuple::new(py, self.0)?,))
    }
}
