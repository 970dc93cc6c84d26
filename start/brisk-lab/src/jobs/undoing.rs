use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use anyhow::Result;

use crate::stage::runtime;
use crate::undo::Undo;

/// Measures, and then restores what that changed on the machine, however it ended.
pub fn undoing<T>(measure: impl FnOnce(&mut Undo) -> Result<T>) -> Result<T> {
    let ground = tempfile::Builder::new().prefix("brisk-lab-").tempdir()?;
    fs::create_dir(runtime(ground.path()))?;
    fs::set_permissions(runtime(ground.path()), Permissions::from_mode(0o700))?;
    let mut undo = Undo::start(&runtime(ground.path()))?;
    undo.remove(&ground.keep())?;
    let measured = measure(&mut undo);
    let undone = undo.finish();
    let results = measured?;
    undone.map(|()| results)
}
