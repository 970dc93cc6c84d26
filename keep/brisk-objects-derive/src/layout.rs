//! The layout of a struct or an enum: its fields, in their order.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Field, Fields, LitStr, parse_quote};

pub(crate) fn derive(input: &DeriveInput) -> syn::Result<TokenStream> {
    let owner = &input.ident;
    let layout = match &input.data {
        Data::Struct(data) => fields(&data.fields)?,
        Data::Enum(data) => {
            let variants = data.variants.iter().map(|variant| {
                let name = variant.ident.unraw().to_string();
                let layout = fields(&variant.fields)?;
                let layout = match &variant.discriminant {
                    // What a value stands for may change without its name.
                    Some((_, number)) => quote! {
                        ::brisk_cache::layout_of_fields(&[
                            (#name, #layout),
                            ("=", ::brisk_cache::fingerprint(::core::stringify!(#number))),
                        ])
                    },
                    None => layout,
                };
                Ok(quote!((#name, #layout)))
            });
            let variants = variants.collect::<syn::Result<Vec<_>>>()?;
            // An enum is no struct with the same names.
            quote! {
                ::brisk_cache::layout_of_fields(&[
                    ("enum", ::brisk_cache::layout_of_fields(&[#(#variants),*])),
                ])
            }
        }
        Data::Union(_) => {
            let message = "a union has no layout: its fields share their bytes";
            return Err(syn::Error::new(owner.span(), message));
        }
    };
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(::brisk_cache::Layout));
    }
    let (parameters, arguments, bounds) = generics.split_for_impl();
    Ok(quote! {
        impl #parameters ::brisk_cache::Layout for #owner #arguments #bounds {
            const LAYOUT: u64 = #layout;
        }
    })
}

fn fields(fields: &Fields) -> syn::Result<TokenStream> {
    let layouts = fields.iter().enumerate().map(|(number, field)| {
        let name = match &field.ident {
            Some(name) => name.unraw().to_string(),
            None => number.to_string(),
        };
        let layout = match described(field)? {
            Some(words) => quote!(::brisk_cache::fingerprint(#words)),
            None => {
                let kind = &field.ty;
                quote!(<#kind as ::brisk_cache::Layout>::LAYOUT)
            }
        };
        Ok(quote!((#name, #layout)))
    });
    let layouts = layouts.collect::<syn::Result<Vec<_>>>()?;
    Ok(quote!(::brisk_cache::layout_of_fields(&[#(#layouts),*])))
}

/// What `#[layout = "..."]` says of a field.
fn described(field: &Field) -> syn::Result<Option<LitStr>> {
    let mut found = None;
    for attribute in &field.attrs {
        if !attribute.path().is_ident("layout") {
            continue;
        }
        let message = "describe the type of the field in words: #[layout = \"...\"]";
        let wrong = |span| syn::Error::new(span, message);
        let meta = attribute.meta.require_name_value();
        let value = &meta.map_err(|e| wrong(e.span()))?.value;
        let syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(words),
            ..
        }) = value
        else {
            return Err(wrong(attribute.pound_token.span));
        };
        found = Some(words.clone());
    }
    Ok(found)
}
