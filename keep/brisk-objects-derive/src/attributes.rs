//! What the attributes of a record say.

use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::parse::Parse;
use syn::{Attribute, DeriveInput, Field, Ident, LitStr, Token, parenthesized};

use crate::names;

/// An index over fields, in their order.
pub(crate) struct Index {
    pub(crate) name: String,
    pub(crate) fields: Vec<Ident>,
    pub(crate) is_unique: bool,
}

/// All that the attributes of a record say.
pub(crate) struct Attributes {
    pub(crate) collection: String,
    /// The fields of the key, in their order.
    pub(crate) key: Vec<Ident>,
    /// Whether the database chooses the key.
    pub(crate) is_auto: bool,
    pub(crate) indexes: Vec<Index>,
}

impl Attributes {
    pub(crate) fn of(input: &DeriveInput, fields: &[&Field]) -> syn::Result<Self> {
        let mut found = Self {
            collection: names::snake_case(&input.ident.to_string()),
            key: Vec::new(),
            is_auto: false,
            indexes: Vec::new(),
        };
        for field in fields {
            for attribute in &field.attrs {
                found.take_of_field(field, attribute)?;
            }
        }
        for attribute in &input.attrs {
            if attribute.path().is_ident("record") {
                attribute.parse_nested_meta(|meta| found.take_of_struct(&meta))?;
            }
        }
        found.check(input, fields)?;
        Ok(found)
    }

    fn take_of_field(&mut self, field: &Field, attribute: &Attribute) -> syn::Result<()> {
        let name = names::name(field)?;
        let path = attribute.path();
        if path.is_ident("key") {
            self.key.push(name.clone());
            if matches!(attribute.meta, syn::Meta::List(_)) {
                attribute.parse_nested_meta(|meta| match meta.path.is_ident("auto") {
                    true => {
                        self.is_auto = true;
                        Ok(())
                    }
                    false => Err(meta.error("a key is `#[key]` or `#[key(auto)]`")),
                })?;
            }
        } else if path.is_ident("index") || path.is_ident("unique") {
            attribute.meta.require_path_only()?;
            self.indexes.push(Index {
                name: name.unraw().to_string(),
                fields: vec![name.clone()],
                is_unique: path.is_ident("unique"),
            });
        }
        Ok(())
    }

    fn take_of_struct(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        let is_unique = meta.path.is_ident("unique");
        if meta.path.is_ident("name") {
            self.collection = meta.value()?.parse::<LitStr>()?.value();
        } else if is_unique || meta.path.is_ident("index") {
            let content;
            parenthesized!(content in meta.input);
            let fields = content.parse_terminated(Ident::parse, Token![,])?;
            let fields: Vec<Ident> = fields.into_iter().collect();
            let names = fields.iter().map(|field| field.unraw().to_string());
            let names: Vec<String> = names.collect();
            if names.is_empty() {
                return Err(meta.error("an index has fields"));
            }
            self.indexes.push(Index {
                name: names.join("_"),
                fields,
                is_unique,
            });
        } else {
            return Err(
                meta.error("allowed are name = \"…\", index(FIELD, …) and unique(FIELD, …)")
            );
        }
        Ok(())
    }

    fn check(&self, input: &DeriveInput, fields: &[&Field]) -> syn::Result<()> {
        let has = |wanted: &Ident| {
            fields
                .iter()
                .any(|field| field.ident.as_ref() == Some(wanted))
        };
        if self.key.is_empty() {
            let message = "a record has a key: mark a field with `#[key]`, or one of type u64 with `#[key(auto)]`";
            return Err(syn::Error::new(input.ident.span(), message));
        }
        if let (true, [_, second, ..]) = (self.is_auto, self.key.as_slice()) {
            return Err(syn::Error::new(
                second.span(),
                "an automatic key is one field",
            ));
        }
        for index in &self.indexes {
            if let Some(missing) = index.fields.iter().find(|field| !has(field)) {
                return Err(syn::Error::new(missing.span(), "there is no such field"));
            }
            let mut fields = index.fields.iter().enumerate();
            let is_second = |(number, field): (usize, &Ident)| {
                let before = index.fields.get(..number).unwrap_or_default();
                before.contains(field)
            };
            if let Some((_, twice)) = fields.find(|pair| is_second(*pair)) {
                return Err(syn::Error::new(
                    twice.span(),
                    "the index has this field twice",
                ));
            }
        }
        for (number, index) in self.indexes.iter().enumerate() {
            let before = self.indexes.get(..number).unwrap_or_default();
            if let (true, Some(field)) = (
                before.iter().any(|other| other.name == index.name),
                index.fields.first(),
            ) {
                let message = format!("there are two indexes of the name {}", index.name);
                return Err(syn::Error::new(field.span(), message));
            }
        }
        if self.collection.starts_with("brisk-objects") {
            let message = "names that begin with brisk-objects are not for collections";
            return Err(syn::Error::new(input.ident.span(), message));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if self.collection.is_empty() || !self.collection.chars().all(is_plain) {
            let message = "a collection's name has letters, digits, `_` and `-`";
            return Err(syn::Error::new(input.ident.span(), message));
        }
        Ok(())
    }
}
