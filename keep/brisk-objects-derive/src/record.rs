//! The key and the indexes of a record.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{DeriveInput, Field, Ident, Type};

use crate::attributes::Attributes;
use crate::{names, value};

pub(crate) fn derive(input: &DeriveInput) -> syn::Result<TokenStream> {
    let fields = names::fields(input)?;
    let attributes = Attributes::of(input, &fields)?;
    let stored_form = value::stored_form(input, &fields)?;
    let (owner, visibility) = (&input.ident, &input.vis);
    let (collection, key) = (&attributes.collection, &attributes.key);
    let key_type = tuple_type(key, &fields);
    let key_texts = key.iter().map(|name| name.unraw().to_string());
    let key_types = types(key, &fields);
    let is_auto = attributes.is_auto;
    let auto_key_at = match (is_auto, key.first()) {
        (true, Some(name)) => {
            let before = fields
                .iter()
                .take_while(|field| field.ident.as_ref() != Some(name));
            let before = before.map(|field| &field.ty);
            // No other type has this key.
            quote! {
                ::core::option::Option::Some({
                    const fn is_u64(_: fn(&#owner) -> &u64) {}
                    is_u64(|record| &record.#name);
                    0usize #(+ <#before as ::brisk_objects::Value>::WIDTH)*
                })
            }
        }
        _ => quote!(::core::option::Option::None),
    };
    let (mut schemas, mut arms, mut texts, mut constants) = (vec![], vec![], vec![], vec![]);
    for (number, index) in attributes.indexes.iter().enumerate() {
        let (name, is_unique, parts) = (&index.name, index.is_unique, &index.fields);
        let part_types = types(parts, &fields);
        let part_texts = parts.iter().map(|name| name.unraw().to_string());
        let all = tuple_type(parts, &fields);
        schemas.push(quote!(::brisk_objects::IndexSchema {
            name: #name,
            fields: &[#(#part_texts),*],
            is_unique: #is_unique,
        }));
        arms.push(quote!(#number => {
            let mut is_whole = true;
            #(
                let part = view.#parts();
                ::brisk_objects::AsKey::<#part_types>::encode_key(&part, out);
                is_whole &= !::brisk_objects::AsKey::<#part_types>::is_missing(&part);
            )*
            is_whole
        }));
        texts.push(quote!(#number => ::brisk_objects::describe_key::<#all>(bytes)));
        let constant = format_ident!("{}", name.to_uppercase());
        let about = format!("The index `{name}`.");
        constants.push(quote! {
            #[doc = #about]
            #visibility const #constant: ::brisk_objects::Index<#owner, #all> =
                ::brisk_objects::Index::numbered(#number);
        });
    }
    Ok(quote! {
        #stored_form

        impl ::brisk_objects::Stored for #owner {
            const FINGERPRINT: u64 =
                <Self as ::brisk_objects::Record>::SCHEMA.layout_fingerprint();
            type View<'a> = <Self as ::brisk_objects::Value>::View<'a>;

            fn view(bytes: &[u8]) -> ::core::option::Option<Self::View<'_>> {
                ::brisk_objects::Place::of_value::<Self>(bytes)
                    .map(<Self as ::brisk_objects::Value>::view_at)
            }
        }

        impl ::brisk_objects::Record for #owner {
            const SCHEMA: ::brisk_objects::Schema = ::brisk_objects::Schema {
                collection: #collection,
                layout: <Self as ::brisk_objects::Value>::TYPE,
                key: &[#(#key_texts),*],
                is_auto: #is_auto,
                indexes: &[#(#schemas),*],
            };
            const AUTO_KEY_AT: ::core::option::Option<usize> = #auto_key_at;
            type Key = #key_type;

            fn encode_key_of(view: &<Self as ::brisk_objects::Value>::View<'_>, out: &mut ::brisk_objects::KeyBytes) {
                #(::brisk_objects::AsKey::<#key_types>::encode_key(&view.#key(), out);)*
            }

            fn encode_index_key(
                view: &<Self as ::brisk_objects::Value>::View<'_>,
                number: usize,
                out: &mut ::brisk_objects::KeyBytes,
            ) -> bool {
                match number {
                    #(#arms)*
                    _ => true,
                }
            }

            fn describe_index_key(number: usize, bytes: &[u8]) -> ::std::string::String {
                match number {
                    #(#texts,)*
                    _ => ::std::string::String::new(),
                }
            }

        }

        impl #owner {
            #(#constants)*
        }
    })
}

/// The types of fields, in the order of their names.
fn types<'f>(names: &[Ident], fields: &[&'f Field]) -> Vec<&'f Type> {
    let field = |name: &Ident| {
        fields
            .iter()
            .find(|field| field.ident.as_ref() == Some(name))
    };
    names
        .iter()
        .filter_map(field)
        .map(|field| &field.ty)
        .collect()
}

/// The type of one field, or a tuple of several.
fn tuple_type(names: &[Ident], fields: &[&Field]) -> TokenStream {
    match types(names, fields).as_slice() {
        [one] => quote!(#one),
        several => quote!((#(#several),*)),
    }
}
