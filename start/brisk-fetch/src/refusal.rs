/// Why a registry or another server is not asked.
#[derive(Debug)]
pub enum Refusal {
    /// It wants to know who asks, and the user was not asked yet. The name is that of credentials: a host, or an object store.
    Login(String),
    /// Asking again will not help.
    Never(String),
    /// It may pass.
    Later(String),
    /// It may pass, but seldom in a moment: the way to the server is not the right one. A start is told at once, and a program that
    /// runs waits.
    NotSoon(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Later(why)
    }
}
