use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A zeroed buffer whose address is a multiple of a chosen power of two.
///
/// Direct I/O needs a buffer that is aligned to the block size of the device (512 or 4096 bytes).
///
/// Invariants:
/// 1. `ptr` was returned by the allocator for `layout`, and is freed only by `drop`.
/// 2. `layout.size()` is not zero.
/// 3. `len <= layout.size()`, and all `layout.size()` bytes are initialised.
#[derive(Debug)]
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    layout: Layout,
    len: usize,
}

impl AlignedBuf {
    /// A buffer of `len` zero bytes, at an address that is a multiple of `align`.
    ///
    /// # Panics
    ///
    /// If `align` is not a power of two, or if `len` rounded up to a multiple of it is larger than
    /// `isize::MAX`.
    pub fn zeroed(len: usize, align: usize) -> Self {
        let layout = Layout::from_size_align(len.max(1), align)
            .expect("alignment is a power of two and the size fits an isize");
        // SAFETY: `alloc_zeroed` needs a layout of non-zero size; `len.max(1)` is at least 1.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw) else {
            handle_alloc_error(layout)
        };
        Self { ptr, layout, len }
    }

    /// The alignment: the address is a multiple of it.
    pub fn align(&self) -> usize {
        self.layout.align()
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: invariants 1 and 3 make `len` bytes from `ptr` readable and initialised for the
        // life of `self`, they fit an isize, as every `Layout` does, and `&self` keeps them from being written through
        // `deref_mut`.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: by invariants 1 and 3, `len` bytes from `ptr` are allocated and initialised for the life of `self`,
        // and they fit an isize, as every `Layout` does. `&mut self` makes this the only reference to them.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: invariant 1: `ptr` came from the allocator with this `layout`, once.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) }
    }
}

// SAFETY: the buffer owns its bytes as a `Vec<u8>` does, and has no thread-bound state.
unsafe impl Send for AlignedBuf {}
// SAFETY: `&AlignedBuf` gives only `&[u8]`, which is `Sync`.
unsafe impl Sync for AlignedBuf {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_as_long_as_asked() {
        for align in [1, 16, 512, 4096, 1 << 20] {
            for len in [0, 1, 511, 4096, 10_000] {
                let mut buf = AlignedBuf::zeroed(len, align);
                assert_eq!(buf.as_ptr().addr() % align, 0, "{len} {align}");
                assert_eq!(buf.len(), len);
                assert!(buf.iter().all(|&b| b == 0));
                buf.fill(7);
                assert!(buf.iter().all(|&b| b == 7));
            }
        }
    }
}
