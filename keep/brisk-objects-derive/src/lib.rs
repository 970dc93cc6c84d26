/*!
The derive macros of `brisk-objects`, and `Layout` of `brisk-cache`. These crates re-export and document them.
*/
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod attributes;
mod enumeration;
mod layout;
mod names;
mod record;
mod value;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a struct a record: see `brisk_objects::Record`.
#[proc_macro_derive(Record, attributes(record, key, index, unique))]
pub fn derive_record(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    tokens(record::derive(&input))
}

/// Makes a struct or an enum a value that records can have as a field: see `brisk_objects::Value`.
#[proc_macro_derive(Value)]
pub fn derive_value(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    tokens(value::derive(&input))
}

/// The layout of a type, as a fingerprint of its fields: see `brisk_cache::Layout`.
#[proc_macro_derive(Layout, attributes(layout))]
pub fn derive_layout(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    tokens(layout::derive(&input))
}

fn tokens(made: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    made.unwrap_or_else(syn::Error::into_compile_error).into()
}
