/// What is behind the URL of a map. It says which answers are rewritten, and which are kept for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Anything: nothing is rewritten.
    Plain,
    /// An index of Python packages (PEP 503 and PEP 691).
    Python,
    /// A registry of npm packages.
    Npm,
    /// A sparse index of Rust crates.
    Cargo,
    /// A proxy of Go modules.
    Go,
    /// An archive of Debian packages.
    Apt,
    /// A registry of OCI images, from which clients pull.
    Oci,
    /// The same, to which they push too.
    OciPush,
}

impl Kind {
    /// The kinds whose URL may be in the configuration of a client.
    pub const PRESETS: [Self; 5] = [Self::Python, Self::Npm, Self::Cargo, Self::Go, Self::Apt];

    /// The name in options and paths.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Python => "python",
            Self::Npm => "npm",
            Self::Cargo => "cargo",
            Self::Go => "go",
            Self::Apt => "apt",
            Self::Oci => "oci",
            Self::OciPush => "oci-push",
        }
    }

    /// The kind of a name.
    pub fn parse(name: &str) -> Option<Self> {
        let others = [Self::Plain, Self::Oci, Self::OciPush];
        let mut all = Self::PRESETS.into_iter().chain(others);
        all.find(|kind| kind.name() == name)
    }

    /// Whether it is a registry of OCI images.
    pub fn is_registry(self) -> bool {
        matches!(self, Self::Oci | Self::OciPush)
    }

    /// Whether an index of this kind has files with such a path. Other links of its pages are none of the proxy's business.
    pub fn has_file(self, path: &str) -> bool {
        let ends: &[&str] = match self {
            Self::Python => &[
                ".whl",
                ".tar.gz",
                ".zip",
                ".tar.bz2",
                ".tar.xz",
                ".tgz",
                ".egg",
                ".metadata",
                ".asc",
            ],
            Self::Npm => &[".tgz", ".tar.gz"],
            // The form of the path is the index's own.
            Self::Cargo => &[""],
            Self::Plain | Self::Go | Self::Apt | Self::Oci | Self::OciPush => return false,
        };
        ends.iter().any(|end| path.ends_with(end))
    }
}
