//! Checks that types can be sent to another thread, or shared between threads. If one cannot, this program
//! does not compile.

use brisk_io::{
    AlignedBuf, AsyncFile, BlockDevice, ByteSource, Charge, Extent, ImmutableFile,
    ImmutableMapping, Loaded, Mapping, Need, Prefetch, PrefetchOptions, ReadAtFuture, Residency,
    Strategy, Window,
};

fn goes_to_threads<T: Send + Sync + ?Sized>() {}

fn is_kept_anywhere<T: Send + Sync + 'static>() {}

#[test]
fn sources_go_to_threads() {
    goes_to_threads::<dyn ByteSource>();
    is_kept_anywhere::<Box<dyn ByteSource>>();
    is_kept_anywhere::<Window<std::sync::Arc<std::fs::File>>>();
    is_kept_anywhere::<Mapping>();
    is_kept_anywhere::<ImmutableFile>();
    is_kept_anywhere::<ImmutableMapping>();
    is_kept_anywhere::<Loaded>();
    is_kept_anywhere::<AlignedBuf>();
    is_kept_anywhere::<AsyncFile>();
    goes_to_threads::<ReadAtFuture<'_>>();
}

#[test]
fn prefetching_goes_to_threads() {
    is_kept_anywhere::<Prefetch>();
    is_kept_anywhere::<PrefetchOptions>();
    is_kept_anywhere::<(BlockDevice, Charge, Extent, Need, Residency, Strategy)>();
}
