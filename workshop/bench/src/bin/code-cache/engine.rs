//! Makes compiled modules from bytes, with wasmtime.
//!
//! Only this file of the workspace has unsafe code, because wasmtime executes the bytes that it gets here.
#![allow(unsafe_code)]

use std::collections::hash_map::DefaultHasher;
use std::ffi::c_void;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use brisk_cache::{CachedCode, Check};
use brisk_io::{Form, Need, Strategy, Touch};
use rustix::mm::{MprotectFlags, mprotect};
use wasmtime::{Config, CustomCodeMemory, Engine, Instance, Module, Store};

use crate::one_entry::{OneEntry, OwnedKey};

/// A compiled module, as a plain file and as an entry of a cache.
///
/// 1. Both contain what an engine of this program has serialized. They are in a folder of this process, which
///    writes them once.
pub(crate) struct Kept {
    plain: PathBuf,
    entry: OneEntry,
    len: usize,
}

impl Kept {
    /// Compiles `source`, and keeps the code below `work`.
    pub(crate) fn new(engines: &Engines, source: &[u8], work: &Path) -> Result<Self> {
        let code = wasm(engines.usual.precompile_module(source))?;
        let plain = work.join("plain.cwasm");
        fs::write(&plain, &code)?;
        File::open(&plain)?.sync_all()?;
        let key = OwnedKey {
            flags: engines.flags(),
            source: *blake3::hash(source).as_bytes(),
        };
        Ok(Self {
            plain,
            entry: OneEntry::new(work.join("modules"), key, &code)?,
            len: code.len(),
        })
    }

    /// The size of the code.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn files(&self) -> [&Path; 2] {
        [&self.plain, self.entry.file()]
    }
}

/// Two wasmtime engines: one with the usual settings, and one for code that somebody else has mapped.
pub(crate) struct Engines {
    usual: Engine,
    mapped: Engine,
}

/// A module and the memory with its code. The module is dropped first.
pub(crate) struct Loaded {
    engine: Engine,
    module: Module,
    _code: Option<CachedCode>,
}

impl Engines {
    pub(crate) fn new() -> Result<Self> {
        let mut config = Config::new();
        config.with_custom_code_memory(Some(Arc::new(MappedCode)));
        Ok(Self {
            usual: Engine::default(),
            mapped: wasm(Engine::new(&config))?,
        })
    }

    /// The version, the settings and the processor features on which the code depends.
    fn flags(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.usual.precompile_compatibility_hash().hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    pub(crate) fn compile(&self, source: &[u8]) -> Result<Loaded> {
        self.with_own_memory(wasm(Module::new(&self.usual, source))?)
    }

    /// Reads the plain file. wasmtime copies the code.
    pub(crate) fn read(&self, kept: &Kept) -> Result<Loaded> {
        let code = fs::read(&kept.plain)?;
        // SAFETY: the bytes must be what wasmtime has serialized: invariant 1 of `Kept`.
        let module = unsafe { Module::deserialize(&self.usual, &code) };
        self.with_own_memory(wasm(module)?)
    }

    /// wasmtime maps the plain file.
    pub(crate) fn map_plain(&self, kept: &Kept) -> Result<Loaded> {
        // SAFETY: the file must have what wasmtime has serialized, and must not change: invariant 1 of `Kept`.
        let module = unsafe { Module::deserialize_file(&self.usual, &kept.plain) };
        self.with_own_memory(wasm(module)?)
    }

    /// Loads a copy of the entry. wasmtime copies the code again.
    pub(crate) fn copied(&self, kept: &Kept) -> Result<Loaded> {
        let need = Need::new().form(Form::Copied);
        let code = kept.entry.load(Check::AtOpen, need)?;
        // SAFETY: the bytes must be what wasmtime has serialized: invariant 1 of `Kept`.
        let module = unsafe { Module::deserialize(&self.usual, code.as_slice()) };
        self.with_own_memory(wasm(module)?)
    }

    /// Maps the entry. wasmtime uses the code in place.
    pub(crate) fn mapped(&self, kept: &Kept, check: Check) -> Result<Loaded> {
        let need = Need::new().form(Form::Patched).touch(Touch::Part);
        let mut code = kept.entry.load(check, need)?;
        let strategy = code.loaded().strategy();
        ensure!(
            strategy == Strategy::PrivateMap,
            "the code was loaded by {strategy}, but this row measures another strategy"
        );
        let bytes = code.as_mut_slice().context("a private map is writable")?;
        let memory = NonNull::from(bytes);
        // SAFETY: the bytes must be what wasmtime has serialized: invariant 1 of `Kept`. They must live as
        // long as the module and not be changed: `Loaded` keeps them behind it and gives them to nobody.
        let module = unsafe { Module::deserialize_raw(&self.mapped, memory) };
        Ok(Loaded {
            engine: self.mapped.clone(),
            module: wasm(module)?,
            _code: Some(code),
        })
    }

    fn with_own_memory(&self, module: Module) -> Result<Loaded> {
        Ok(Loaded {
            engine: self.usual.clone(),
            module,
            _code: None,
        })
    }
}

impl Loaded {
    /// Calls an export of a new instance.
    pub(crate) fn call(&self, export: &str, x: i32) -> Result<i32> {
        let mut store = Store::new(&self.engine, ());
        let instance = wasm(Instance::new(&mut store, &self.module, &[]))?;
        let function = wasm(instance.get_typed_func::<i32, i32>(&mut store, export))?;
        wasm(function.call(&mut store, x))
    }
}

/// wasmtime has errors of its own, which are not those of `anyhow`.
fn wasm<T>(result: wasmtime::Result<T>) -> Result<T> {
    result.map_err(|e| anyhow::anyhow!("{e:?}"))
}

/// Makes code executable in a private mapping of a file.
struct MappedCode;

impl MappedCode {
    fn protect(start: *const u8, len: usize, flags: MprotectFlags) -> wasmtime::Result<()> {
        // SAFETY: the range must be mapped, and nobody may rely on what it forbids: wasmtime gives whole
        // pages of the memory that `use_mapped` gave it, which nobody else uses.
        unsafe { mprotect(start.cast_mut().cast::<c_void>(), len, flags) }?;
        Ok(())
    }
}

impl CustomCodeMemory for MappedCode {
    fn required_alignment(&self) -> usize {
        brisk_io::page_size()
    }

    fn publish_executable(&self, start: *const u8, len: usize) -> wasmtime::Result<()> {
        Self::protect(start, len, MprotectFlags::READ | MprotectFlags::EXEC)
    }

    fn unpublish_executable(&self, start: *const u8, len: usize) -> wasmtime::Result<()> {
        Self::protect(start, len, MprotectFlags::READ | MprotectFlags::WRITE)
    }
}
