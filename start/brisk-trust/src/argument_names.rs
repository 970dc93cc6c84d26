/// What messages call the arguments that say how an image on the network is opened.
#[derive(Debug, Clone, Copy)]
pub struct ArgumentNames {
    /// That with keys.
    pub trust: &'static str,
    /// The same, with a key.
    pub trust_key: &'static str,
    /// That by which a server by plain HTTP is believed.
    pub insecure: &'static str,
    /// That by which the server is asked first.
    pub refresh: &'static str,
    /// That with the name of a variant.
    pub variant: &'static str,
}
