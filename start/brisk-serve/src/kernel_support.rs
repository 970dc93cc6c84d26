use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use brisk_launch::error::{Cause, Error, Result};
use rustix::fs::{Access, AtFlags, CWD, accessat, major, minor};

use crate::action::Action;
use crate::squashfs_decoding::SquashfsDecoding;
use crate::sys::fuse_device::is_fuse;

/// Codec names, as `brisk pack --codec` spells them, and the kernel options that decode them.
const CODECS: [(&str, &str); 5] = [
    ("gzip", "CONFIG_SQUASHFS_ZLIB"),
    ("lz4", "CONFIG_SQUASHFS_LZ4"),
    ("lzo", "CONFIG_SQUASHFS_LZO"),
    ("xz", "CONFIG_SQUASHFS_XZ"),
    ("zstd", "CONFIG_SQUASHFS_ZSTD"),
];

/// Names of xz's branch filters, as `mksquashfs -Xbcj` spells them, and the kernel options that
/// decode them.
const XZ_FILTERS: [(&str, &str); 8] = [
    ("x86", "CONFIG_XZ_DEC_X86"),
    ("powerpc", "CONFIG_XZ_DEC_POWERPC"),
    ("ia64", "CONFIG_XZ_DEC_IA64"),
    ("arm", "CONFIG_XZ_DEC_ARM"),
    ("armthumb", "CONFIG_XZ_DEC_ARMTHUMB"),
    ("arm64", "CONFIG_XZ_DEC_ARM64"),
    ("sparc", "CONFIG_XZ_DEC_SPARC"),
    ("riscv", "CONFIG_XZ_DEC_RISCV"),
];

/// A decompressed kernel configuration has about 300 KB. One that claims more than this many bytes is not
/// read.
const CONFIG_LIMIT: usize = 16 << 20;

/// Whether the kernel has a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Support {
    /// The kernel has it.
    Yes,
    /// The kernel has it as a module that is not loaded yet. It loads the module when it is needed.
    Module,
    /// The kernel was built without it.
    No,
    /// Unknown, because the kernel's configuration is neither in `/proc/config.gz` nor in `/boot`.
    Unknown,
}

/// A device node of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceNode {
    /// The permission bits, such as `0o666`.
    pub mode: u32,
    /// Whether this process may open it for reading and writing.
    pub allowed: bool,
}

/// The limits for user namespaces. `None` if the kernel has no such limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UserNamespaces {
    /// `user.max_user_namespaces`.
    pub max: Option<u64>,
    /// Whether `kernel.unprivileged_userns_clone` (Debian) is on.
    pub unprivileged_clone: Option<bool>,
    /// Whether `kernel.apparmor_restrict_unprivileged_userns` (Ubuntu) is on.
    pub apparmor_restricts: Option<bool>,
    /// Whether this process has an AppArmor profile. The profile that is installed for brisk allows
    /// namespaces. The one of programs that brisk has started does not, and does not count.
    pub apparmor_profile: bool,
}

impl UserNamespaces {
    /// Asks the running kernel.
    pub fn probe() -> Self {
        Self {
            max: sysctl("user/max_user_namespaces"),
            unprivileged_clone: sysctl("kernel/unprivileged_userns_clone").map(|n| n != 0),
            apparmor_restricts: sysctl("kernel/apparmor_restrict_unprivileged_userns")
                .map(|n| n != 0),
            apparmor_profile: fs::read_to_string("/proc/self/attr/apparmor/current")
                .is_ok_and(|label| is_profile(&label)),
        }
    }

    /// Whether this program can use a user namespace without root.
    pub fn unprivileged(&self) -> bool {
        self.max.is_some_and(|max| max > 0)
            && self.unprivileged_clone != Some(false)
            && (self.apparmor_restricts != Some(true) || self.apparmor_profile)
    }
}

/// Who may use io_uring, by `kernel.io_uring_disabled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoUring {
    /// Everybody.
    Everybody,
    /// Root and the members of `kernel.io_uring_group`.
    Group,
    /// Nobody, because of that setting or because the kernel was built without io_uring.
    Nobody,
    /// Unknown: the kernel has no such setting (it came with 6.6) and does not publish its configuration.
    Unknown,
}

/// What the running kernel offers for starting programs from images.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelSupport {
    /// The release, as `uname -r` prints it.
    pub release: String,
    /// Bytes in a page of memory.
    pub page_size: usize,
    /// The file from which the kernel's configuration was read.
    pub config: Option<PathBuf>,
    /// The SquashFS file system.
    pub squashfs: Support,
    /// How it decodes SquashFS. `None` if its configuration does not say.
    pub squashfs_decoding: Option<SquashfsDecoding>,
    /// The decompressors of SquashFS: `gzip`, `lz4`, `lzo`, `xz`, `zstd`.
    pub codecs: Vec<(&'static str, Support)>,
    /// The branch filters of xz: `x86`, `arm64` and others. An image that was packed with a filter needs it.
    pub xz_filters: Vec<(&'static str, Support)>,
    /// The EROFS file system.
    pub erofs: Support,
    /// `/dev/loop-control`. Mounting a file needs it.
    pub loop_control: Option<DeviceNode>,
    /// `/dev/fuse`. `None` if there is none, or if another device stands there.
    pub fuse: Option<DeviceNode>,
    /// Whether the kernel can send the unanswered requests of a FUSE server again (6.9). Programs then go on
    /// when their server dies and is replaced.
    pub fuse_resend: Support,
    /// The path of `fusermount3`. It mounts for users that may not make namespaces.
    pub fusermount: Option<PathBuf>,
    /// User namespaces. Running from an image without root needs them.
    pub user_namespaces: UserNamespaces,
    /// io_uring.
    pub io_uring: IoUring,
    /// Whether the kernel has events for pages that enter the page cache, and fanotify. Root traces the whole
    /// system with them.
    pub page_cache_events: Support,
}

impl KernelSupport {
    /// Asks the running kernel. What the kernel does not say becomes `Unknown` or `None`, so this cannot
    /// fail.
    pub fn probe() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let release = release.trim().to_owned();
        let config = Config::read(&release);
        let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        Self {
            page_size: rustix::param::page_size(),
            squashfs: filesystem(&filesystems, "squashfs", config.get("CONFIG_SQUASHFS")),
            squashfs_decoding: SquashfsDecoding::of(|option| config.get(option) == Support::Yes),
            codecs: config.table(&CODECS),
            xz_filters: config.table(&XZ_FILTERS),
            erofs: filesystem(&filesystems, "erofs", config.get("CONFIG_EROFS_FS")),
            loop_control: device_node("/dev/loop-control"),
            fuse: fuse_node(),
            fuse_resend: since(&release, (6, 9)),
            fusermount: find_in_path("fusermount3"),
            user_namespaces: UserNamespaces::probe(),
            io_uring: io_uring(
                sysctl("kernel/io_uring_disabled"),
                config.get("CONFIG_IO_URING"),
            ),
            page_cache_events: page_cache_events([
                config.get("CONFIG_EVENT_TRACING"),
                config.get("CONFIG_FANOTIFY"),
            ]),
            config: config.path,
            release,
        }
    }

    /// Whether the kernel can mount images packed with `codec` (`zstd`, `gzip`, …). It can always mount
    /// `none`.
    pub fn codec(&self, codec: &str) -> Support {
        if codec == "none" {
            return Support::Yes;
        }
        let known = self.codecs.iter().find(|(name, _)| *name == codec);
        known.map_or(Support::No, |(_, support)| *support)
    }
}

/// How many bytes the kernel reads ahead on the device that holds `path`. `None` if there is no device, for
/// example for a file in memory.
///
/// # Errors
///
/// `Io` if there is nothing at `path`.
pub fn read_ahead(path: &Path) -> Result<Option<u64>> {
    let metadata = fs::metadata(path)
        .map_err(|e| Error::new(Action::Probe, Cause::io("examine the file", e)).with_path(path))?;
    let (major, minor) = (major(metadata.dev()), minor(metadata.dev()));
    let text = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    Ok(text
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .and_then(|kib| kib.checked_mul(1024)))
}

/// The best codec that the kernel has, for an image that uses the `missing` one.
pub(crate) fn codec_instead_of(missing: &str, support: &KernelSupport) -> &'static str {
    ["zstd", "gzip", "xz", "lz4", "lzo"]
        .into_iter()
        .find(|name| *name != missing && support.codec(name) != Support::No)
        .unwrap_or("none")
}

/// The kernel's build options.
struct Config {
    path: Option<PathBuf>,
    text: String,
}

impl Config {
    fn read(release: &str) -> Self {
        let packed = Path::new("/proc/config.gz");
        if let Some(text) = fs::read(packed).ok().and_then(|bytes| gunzip(&bytes)) {
            return Self {
                path: Some(packed.to_owned()),
                text,
            };
        }
        let plain = [
            format!("/boot/config-{release}"),
            format!("/lib/modules/{release}/config"),
            format!("/usr/lib/modules/{release}/config"),
        ];
        for path in plain {
            if let Ok(text) = fs::read_to_string(&path) {
                return Self {
                    path: Some(path.into()),
                    text,
                };
            }
        }
        Self {
            path: None,
            text: String::new(),
        }
    }

    /// An option that is off is a comment, or is missing if the option that it depends on is off.
    fn get(&self, option: &str) -> Support {
        if self.path.is_none() {
            return Support::Unknown;
        }
        let value = self.text.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name == option).then_some(value)
        });
        match value {
            Some("y") => Support::Yes,
            Some("m") => Support::Module,
            _ => Support::No,
        }
    }

    fn table(&self, options: &[(&'static str, &str)]) -> Vec<(&'static str, Support)> {
        let look_up = |&(name, option): &(&'static str, &str)| (name, self.get(option));
        options.iter().map(look_up).collect()
    }
}

/// Unpacks one gzip member. Its last four bytes are its decoded length (RFC 1952, section 2.3.1).
fn gunzip(bytes: &[u8]) -> Option<String> {
    let len = u32::from_le_bytes(*bytes.last_chunk()?);
    let len = usize::try_from(len).ok().filter(|n| *n <= CONFIG_LIMIT)?;
    let mut out = vec![0; len];
    let written = libdeflater::Decompressor::new()
        .gzip_decompress(bytes, &mut out)
        .ok()?;
    out.truncate(written);
    String::from_utf8(out).ok()
}

/// `/proc/filesystems` lists file systems that are built in or loaded. The configuration also has modules.
fn filesystem(filesystems: &str, name: &str, configured: Support) -> Support {
    let listed = filesystems
        .lines()
        .any(|line| line.split_whitespace().last() == Some(name));
    if listed { Support::Yes } else { configured }
}

fn fuse_node() -> Option<DeviceNode> {
    let path = "/dev/fuse";
    let there = fs::metadata(path).ok()?;
    is_fuse(there.mode(), there.rdev())
        .then(|| device_node(path))
        .flatten()
}

fn device_node(path: &str) -> Option<DeviceNode> {
    let metadata = fs::metadata(path).ok()?;
    let access = Access::READ_OK | Access::WRITE_OK;
    Some(DeviceNode {
        mode: metadata.mode() & 0o7777,
        allowed: accessat(CWD, path, access, AtFlags::EACCESS).is_ok(),
    })
}

/// Whether the kernel's release is at least `wanted`.
fn since(release: &str, wanted: (u32, u32)) -> Support {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|digits| digits.parse().ok());
    match (number(), number()) {
        (Some(major), Some(minor)) if (major, minor) >= wanted => Support::Yes,
        (Some(_), Some(_)) => Support::No,
        _ => Support::Unknown,
    }
}

/// Whether the kernel has both parts.
fn page_cache_events(found: [Support; 2]) -> Support {
    match found {
        [Support::Yes, Support::Yes] => Support::Yes,
        found if found.contains(&Support::No) => Support::No,
        _ => Support::Unknown,
    }
}

/// An AppArmor label is `unconfined`, or the name of a profile with its mode: `brisk (unconfined)`.
fn is_profile(label: &str) -> bool {
    let label = label.trim_end_matches(['\n', '\0']);
    !label.is_empty() && label != "unconfined" && !label.contains("brisk_program")
}

fn find_in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|path| accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok())
}

fn sysctl(name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    text.trim().parse().ok()
}

fn io_uring(disabled: Option<u64>, configured: Support) -> IoUring {
    match (disabled, configured) {
        (Some(0), _) | (None, Support::Yes) => IoUring::Everybody,
        (Some(1), _) => IoUring::Group,
        (Some(_), _) | (None, Support::No | Support::Module) => IoUring::Nobody,
        (None, Support::Unknown) => IoUring::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "\
#
# Linux/x86 6.8.0 Kernel Configuration
#
CONFIG_SQUASHFS=m
CONFIG_SQUASHFS_ZLIB=y
# CONFIG_SQUASHFS_LZ4 is not set
CONFIG_SQUASHFS_XZ=y
CONFIG_SQUASHFS_FRAGMENT_CACHE_SIZE=3
CONFIG_LOCALVERSION=\"\"
CONFIG_XZ_DEC_X86=y
# CONFIG_XZ_DEC_ARM is not set
";

    fn config() -> Config {
        Config {
            path: Some("config".into()),
            text: CONFIG.into(),
        }
    }

    #[test]
    fn a_configuration_says_yes_module_or_no() {
        let config = config();
        assert_eq!(config.get("CONFIG_SQUASHFS"), Support::Module);
        assert_eq!(config.get("CONFIG_SQUASHFS_XZ"), Support::Yes);
        assert_eq!(config.get("CONFIG_SQUASHFS_LZ4"), Support::No);
        assert_eq!(config.get("CONFIG_SQUASHFS_ZSTD"), Support::No);
        assert_eq!(
            config.table(&CODECS),
            [
                ("gzip", Support::Yes),
                ("lz4", Support::No),
                ("lzo", Support::No),
                ("xz", Support::Yes),
                ("zstd", Support::No),
            ]
        );
        let none = Config {
            path: None,
            text: String::new(),
        };
        assert_eq!(none.get("CONFIG_SQUASHFS"), Support::Unknown);
    }

    #[test]
    fn a_listed_file_system_needs_no_configuration() {
        let listed = "nodev\tsysfs\n\text4\n\tsquashfs\n";
        assert_eq!(
            filesystem(listed, "squashfs", Support::Unknown),
            Support::Yes
        );
        assert_eq!(
            filesystem(listed, "erofs", Support::Module),
            Support::Module
        );
        assert_eq!(
            filesystem(listed, "squash", Support::Unknown),
            Support::Unknown
        );
    }

    #[test]
    fn damaged_or_huge_configurations_are_not_read() {
        let mut packed = vec![0; 4096];
        let n = libdeflater::Compressor::new(libdeflater::CompressionLvl::default())
            .gzip_compress(CONFIG.as_bytes(), &mut packed)
            .expect("room enough");
        packed.truncate(n);
        assert_eq!(gunzip(&packed).as_deref(), Some(CONFIG));
        for cut in 0..n {
            assert_eq!(gunzip(&packed[..cut]), None, "cut at {cut}");
        }
        packed[n - 1] = 0xff;
        assert_eq!(gunzip(&packed), None);
    }

    #[test]
    fn every_limit_of_user_namespaces_counts() {
        let open = UserNamespaces {
            max: Some(96365),
            unprivileged_clone: None,
            apparmor_restricts: None,
            apparmor_profile: false,
        };
        assert!(open.unprivileged());
        let with_profile = UserNamespaces {
            apparmor_restricts: Some(true),
            apparmor_profile: true,
            ..open
        };
        assert!(with_profile.unprivileged());
        for closed in [
            UserNamespaces { max: None, ..open },
            UserNamespaces {
                max: Some(0),
                ..open
            },
            UserNamespaces {
                unprivileged_clone: Some(false),
                ..open
            },
            UserNamespaces {
                apparmor_restricts: Some(true),
                ..open
            },
        ] {
            assert!(!closed.unprivileged(), "{closed:?}");
        }
    }

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(since("6.9.0-rc1", (6, 9)), Support::Yes);
        assert_eq!(since("6.18.5", (6, 9)), Support::Yes);
        assert_eq!(since("7.0", (6, 9)), Support::Yes);
        assert_eq!(since("6.8.12-generic", (6, 9)), Support::No);
        assert_eq!(since("5.15", (6, 9)), Support::No);
        assert_eq!(since("", (6, 9)), Support::Unknown);
    }

    #[test]
    fn a_label_names_a_profile_or_none() {
        assert!(is_profile("brisk (unconfined)\n"));
        assert!(is_profile("brisk (enforce)\n"));
        assert!(is_profile("snap.app (enforce)"));
        assert!(!is_profile("brisk//&brisk_program (enforce)"));
        assert!(!is_profile("unconfined\n"));
        assert!(!is_profile("\0"));
    }

    #[test]
    fn the_sysctl_of_io_uring_is_read() {
        assert_eq!(io_uring(Some(0), Support::Unknown), IoUring::Everybody);
        assert_eq!(io_uring(Some(1), Support::Yes), IoUring::Group);
        assert_eq!(io_uring(Some(2), Support::Yes), IoUring::Nobody);
        assert_eq!(io_uring(None, Support::Yes), IoUring::Everybody);
        assert_eq!(io_uring(None, Support::No), IoUring::Nobody);
        assert_eq!(io_uring(None, Support::Unknown), IoUring::Unknown);
    }

    #[test]
    fn the_cure_for_a_missing_codec_is_one_that_the_kernel_has() {
        let mut support = KernelSupport::probe();
        support.codecs = config().table(&CODECS);
        assert_eq!(codec_instead_of("zstd", &support), "gzip");
        assert_eq!(codec_instead_of("gzip", &support), "xz");
        support.codecs = Vec::new();
        assert_eq!(codec_instead_of("zstd", &support), "none");
        assert_eq!(support.codec("none"), Support::Yes);
    }
}
