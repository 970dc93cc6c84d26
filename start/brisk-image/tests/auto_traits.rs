//! What can go to another thread, and be used from several at once, does so by its type: this
//! program does not compile otherwise.

use brisk_image::codec::{Bcj, BcjSet, CodecOptions};
use brisk_image::compare::Difference;
use brisk_image::contents::Piece;
use brisk_image::hot_pack::{HotPack, HotPackWriter};
use brisk_image::listing::{DirEntry, ReadDir, Walk, WalkEntry};
use brisk_image::profile::{Origin, Profile, ProfileBuilder};
use brisk_image::rules::{ModeChange, PlanRules};
use brisk_image::summary::{Checked, ExtractSummary, Summary};
use brisk_image::usage::Usage;
use brisk_image::{
    Codec, Compression, Error, ErrorKind, Extractor, FileReader, FileStream, Image, ImageWriter,
    Inode, Limits, OpenOptions, Recipe, Tree, TreeBuilder, TreeRules, Work, Xattr,
};

fn goes_to_threads<T: Send + Sync>() {}

fn is_kept_anywhere<T: Send + Sync + 'static>() {}

#[test]
fn handles_and_values_go_to_threads() {
    is_kept_anywhere::<Image>();
    is_kept_anywhere::<FileReader>();
    is_kept_anywhere::<FileStream>();
    is_kept_anywhere::<Piece>();
    is_kept_anywhere::<Inode>();
    is_kept_anywhere::<DirEntry>();
    is_kept_anywhere::<WalkEntry>();
    is_kept_anywhere::<Xattr>();
    is_kept_anywhere::<OpenOptions>();
    is_kept_anywhere::<Limits>();
    is_kept_anywhere::<Tree>();
    is_kept_anywhere::<TreeBuilder>();
    is_kept_anywhere::<TreeRules>();
    is_kept_anywhere::<ModeChange>();
    is_kept_anywhere::<Difference>();
    is_kept_anywhere::<ImageWriter>();
    is_kept_anywhere::<Extractor>();
    is_kept_anywhere::<Work>();
    is_kept_anywhere::<PlanRules>();
    is_kept_anywhere::<Recipe>();
    is_kept_anywhere::<Summary>();
    is_kept_anywhere::<ExtractSummary>();
    is_kept_anywhere::<Checked>();
    is_kept_anywhere::<Usage>();
    is_kept_anywhere::<(Codec, Compression, CodecOptions, Bcj, BcjSet)>();
    is_kept_anywhere::<(Error, ErrorKind)>();
    goes_to_threads::<ReadDir<'_>>();
    goes_to_threads::<Walk<'_>>();
}

#[test]
fn profiles_and_hot_packs_go_to_threads() {
    is_kept_anywhere::<Profile>();
    is_kept_anywhere::<ProfileBuilder>();
    is_kept_anywhere::<Origin>();
    is_kept_anywhere::<HotPack>();
    is_kept_anywhere::<HotPackWriter>();
    // Threads share what it has decoded.
    is_kept_anywhere::<brisk_image::hot_pack::FrameReader>();
}
