use std::collections::BTreeMap;

use bytes::Bytes;

/// In pages, this stands for the URL of the upstream, which is not known before it listens.
pub const OWN_URL: &str = "UPSTREAM";

/// What a repository serves under which path.
#[derive(Debug, Clone, Default)]
pub struct Site {
    pages: BTreeMap<String, Vec<Form>>,
    files: BTreeMap<String, Bytes>,
}

/// A page in one of its forms.
#[derive(Debug, Clone)]
pub struct Form {
    pub content_type: &'static str,
    pub text: Bytes,
}

impl Site {
    /// Adds a form of a page, which changes when packages come. The first form is for clients that prefer none.
    pub fn page(&mut self, path: &str, content_type: &'static str, text: impl Into<Bytes>) {
        let text = text.into();
        let form = Form { content_type, text };
        self.pages.entry(path.to_owned()).or_default().push(form);
    }

    /// Adds a file, which stays what it is.
    pub fn file(&mut self, path: &str, bytes: impl Into<Bytes>) {
        self.files.insert(path.to_owned(), bytes.into());
    }

    /// The form of a page that a client accepts, and whether there are others.
    pub fn form(&self, path: &str, accept: &str) -> Option<(&Form, bool)> {
        let forms = self.pages.get(path)?;
        let accepted = forms.iter().find(|form| accept.contains(form.content_type));
        Some((accepted.or(forms.first())?, forms.len() > 1))
    }

    /// A file.
    pub fn bytes(&self, path: &str) -> Option<&Bytes> {
        self.files.get(path)
    }

    /// The paths of all files.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }
}
