/*!
The Python module `brisk`: reads files out of SquashFS images.

The central type is [`Image`](image::Image), which Python programs share among threads. Its bytes come from a
[`Source`](source::Source): a file, the network, or a file object of Python. A [`Reader`](reader::Reader) reads one file of an image
at any offset; the file object that Python programs see is made of it in `python/brisk/__init__.py`.

# The lock of Python

What reads or decodes runs without it, so threads read at the same time. These rules keep that free of deadlocks, and make images
survive a fork, which happens only under that lock:

1. A mutex of this crate is never held without Python's lock, but for that of a file object ([`object`]), which is never waited for
   with it.
2. What a process has opened is neither used nor dropped by another process: a thread that a fork has left behind may have stopped
   in the middle of a change. See [`PerProcess`](per_process::PerProcess).
3. Who opens an image that is here tells `brisk-fetch` to ask for a newer one. In a registry or a store a thread waits until `brisk-fetch`
   knows who the user is: it calls no Python and holds no mutex of this crate, and a fork leaves it behind. The commands make a copy of
   their process for that, which a process with threads cannot.
4. Threads of [`batch`] call Python only to read a file object. They end before the call that has started them.

# Trust

All bytes of an image are untrusted: a fault is an `OSError` that says field, place, found and allowed. This crate has no unsafe
code of its own.
*/

mod batch;
mod fault;
mod image;
mod image_path;
mod object;
mod per_process;
mod reader;
mod remote;
mod source;

/// What `python/brisk/__init__.py` is made of.
#[pyo3::pymodule]
mod _brisk {
    #[pymodule_export]
    use crate::image::Image;
    #[pymodule_export]
    use crate::reader::Reader;
}
