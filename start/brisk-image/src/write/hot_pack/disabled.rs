//! What stands for a hot pack in a build that knows none.

use super::ReadBack;
use crate::error::Result;
use crate::output::Output;
use crate::tree::Tree;
use crate::work::Work;
use crate::write::summary::Summary;

/// There is no value of it, so nothing below is ever called.
#[derive(Debug, Clone)]
pub(in crate::write) enum HotPackBehind {}

impl HotPackBehind {
    pub(in crate::write) fn check(&self, _: &Tree) -> Result<()> {
        match *self {}
    }

    pub(in crate::write) fn append(
        &self,
        _: &mut dyn Output,
        _: ReadBack<'_>,
        _: &Work,
        _: &mut Summary,
    ) -> Result<()> {
        match *self {}
    }
}
