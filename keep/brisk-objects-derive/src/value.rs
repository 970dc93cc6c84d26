//! The stored form of a struct, and the view of it.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Field};

use crate::{enumeration, names};

pub(crate) fn derive(input: &DeriveInput) -> syn::Result<TokenStream> {
    if let Data::Enum(data) = &input.data {
        return enumeration::derive(input, data);
    }
    let fields = names::fields(input)?;
    stored_form(input, &fields)
}

/// The view of a struct, and `Value` for it.
pub(crate) fn stored_form(input: &DeriveInput, fields: &[&Field]) -> syn::Result<TokenStream> {
    let (owner, visibility) = (&input.ident, &input.vis);
    let view = names::view(input);
    let names = fields
        .iter()
        .map(|field| names::name(field))
        .collect::<syn::Result<Vec<_>>>()?;
    let texts: Vec<String> = names.iter().map(|name| name.unraw().to_string()).collect();
    if let Some(name) = names.iter().find(|name| **name == "to_owned") {
        return Err(syn::Error::new(
            name.span(),
            "a view has another method of this name",
        ));
    }
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    let visibilities = fields.iter().map(|field| &field.vis);
    let docs: Vec<String> = texts
        .iter()
        .map(|name| format!("The field `{name}`."))
        .collect();
    let about = format!("A look at a stored [`{owner}`].");
    // Where each field begins: behind all before it.
    let offsets: Vec<TokenStream> = (0..types.len())
        .map(|at| {
            let before = types.get(..at).unwrap_or_default();
            quote!(0usize #(+ <#before as ::brisk_objects::Value>::WIDTH)*)
        })
        .collect();
    Ok(quote! {
        #[doc = #about]
        #[derive(Clone, Copy)]
        #visibility struct #view<'a> {
            place: ::brisk_objects::Place<'a>,
        }

        impl<'a> #view<'a> {
            #(
                #[doc = #docs]
                #[inline]
                #visibilities fn #names(&self) -> <#types as ::brisk_objects::Value>::View<'a> {
                    <#types as ::brisk_objects::Value>::view_at(self.place.behind(#offsets))
                }
            )*

            /// A copy that borrows nothing.
            #visibility fn to_owned(&self) -> #owner {
                #owner {
                    #(#names: <#types as ::brisk_objects::Value>::owned(self.#names()),)*
                }
            }
        }

        impl ::core::fmt::Debug for #view<'_> {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                let mut all = f.debug_struct(::core::stringify!(#owner));
                #(all.field(#texts, &self.#names());)*
                all.finish()
            }
        }

        impl ::brisk_objects::Value for #owner {
            const WIDTH: usize = 0 #(+ <#types as ::brisk_objects::Value>::WIDTH)*;
            const TYPE: ::brisk_objects::Type = ::brisk_objects::Type::Struct(&[
                #(::brisk_objects::Field {
                    name: #texts,
                    kind: <#types as ::brisk_objects::Value>::TYPE,
                },)*
            ]);
            type View<'a> = #view<'a>;

            fn write(&self, out: &mut ::brisk_objects::ValueWriter<'_>, at: usize) {
                #(<#types as ::brisk_objects::Value>::write(&self.#names, out, at + #offsets);)*
            }

            #[inline]
            fn view_at(place: ::brisk_objects::Place<'_>) -> Self::View<'_> {
                #view { place }
            }

            fn owned(view: Self::View<'_>) -> Self {
                view.to_owned()
            }
        }
    })
}
