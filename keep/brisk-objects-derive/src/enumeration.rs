//! The stored form of an enum: one byte for the variant, and its values behind it.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{DataEnum, DeriveInput, Fields, Ident, Type, Variant};

use crate::names;

/// One byte says which.
const MOST: usize = 256;

/// A variant, in parts.
struct Parts<'a> {
    name: &'a Ident,
    text: String,
    tag: u8,
    fields: &'a Fields,
    types: Vec<&'a Type>,
    /// The names of the fields, as the schema has them.
    texts: Vec<String>,
    /// What the fields are bound to in a pattern.
    bound: Vec<Ident>,
}

impl<'a> Parts<'a> {
    fn of((number, variant): (usize, &'a Variant)) -> syn::Result<Self> {
        let too_many = || {
            let message = format!("an enum that is stored has at most {MOST} variants");
            syn::Error::new(variant.ident.span(), message)
        };
        let fields = &variant.fields;
        let texts = fields
            .iter()
            .enumerate()
            .map(|(at, field)| match &field.ident {
                Some(name) => name.unraw().to_string(),
                None => at.to_string(),
            });
        Ok(Self {
            name: &variant.ident,
            text: variant.ident.unraw().to_string(),
            tag: u8::try_from(number).map_err(|_| too_many())?,
            fields,
            types: fields.iter().map(|field| &field.ty).collect(),
            texts: texts.collect(),
            bound: (0..fields.len())
                .map(|at| format_ident!("value_{at}"))
                .collect(),
        })
    }

    /// The variant with these values, as a pattern or as an expression.
    fn with(&self, values: &[TokenStream]) -> TokenStream {
        let name = self.name;
        match self.fields {
            Fields::Named(named) => {
                let names = named.named.iter().map(|field| &field.ident);
                quote!(#name { #(#names: #values),* })
            }
            Fields::Unnamed(_) => quote!(#name(#(#values),*)),
            Fields::Unit => quote!(#name),
        }
    }

    fn pattern(&self) -> TokenStream {
        let bound = self.bound.iter().map(|name| quote!(#name));
        self.with(&bound.collect::<Vec<_>>())
    }

    /// Where each value begins: behind the byte and all values before it.
    fn offsets(&self) -> Vec<TokenStream> {
        let offset = |at: usize| {
            let before = self.types.get(..at).unwrap_or_default();
            quote!(1usize #(+ <#before as ::brisk_objects::Value>::WIDTH)*)
        };
        (0..self.types.len()).map(offset).collect()
    }
}

pub(crate) fn derive(input: &DeriveInput, data: &DataEnum) -> syn::Result<TokenStream> {
    names::refuse_parameters(input)?;
    let owner = &input.ident;
    let variants = data.variants.iter().enumerate().map(Parts::of);
    let variants = variants.collect::<syn::Result<Vec<_>>>()?;
    let Some(first) = variants.first() else {
        let message = "an enum that is stored has variants";
        return Err(syn::Error::new(owner.span(), message));
    };
    let is_plain = variants.iter().all(|variant| variant.types.is_empty());
    let (view, view_type) = match is_plain {
        true => (quote!(#owner), quote!(#owner)),
        false => {
            let view = names::view(input);
            (quote!(#view), quote!(#view<'a>))
        }
    };
    let kinds = variants.iter().map(
        |Parts {
             text, types, texts, ..
         }| {
            quote!(::brisk_objects::Field {
                name: #text,
                kind: ::brisk_objects::Type::Struct(&[
                    #(::brisk_objects::Field {
                        name: #texts,
                        kind: <#types as ::brisk_objects::Value>::TYPE,
                    },)*
                ]),
            })
        },
    );
    let widths = variants
        .iter()
        .map(|Parts { types, .. }| quote!(0usize #(+ <#types as ::brisk_objects::Value>::WIDTH)*));
    let writes = variants.iter().map(|variant| {
        let (pattern, tag, types, bound) = (
            variant.pattern(),
            variant.tag,
            &variant.types,
            &variant.bound,
        );
        let offsets = variant.offsets();
        quote!(#owner::#pattern => {
            ::brisk_objects::Value::write(&#tag, out, at);
            #(<#types as ::brisk_objects::Value>::write(#bound, out, at + #offsets);)*
        })
    });
    let look = |variant: &Parts<'_>| {
        let offsets = variant.offsets();
        let values = variant.types.iter().zip(&offsets).map(|(kind, offset)| {
            quote!(<#kind as ::brisk_objects::Value>::view_at(place.behind(#offset)))
        });
        let variant = variant.with(&values.collect::<Vec<_>>());
        quote!(#view::#variant)
    };
    let looks = variants.iter().map(|variant| {
        let (tag, look) = (variant.tag, look(variant));
        quote!(#tag => #look)
    });
    // Somebody has forged the check.
    let other = look(first);
    let has_others = variants.len() < MOST;
    let other = has_others.then(|| quote!(_ => #other,));
    let owned = match is_plain {
        true => quote!(view),
        false => {
            let arms = variants.iter().map(|variant| {
                let (pattern, types, bound) = (variant.pattern(), &variant.types, &variant.bound);
                let values = types
                    .iter()
                    .zip(bound)
                    .map(|(kind, value)| quote!(<#kind as ::brisk_objects::Value>::owned(#value)));
                let made = variant.with(&values.collect::<Vec<_>>());
                quote!(#view::#pattern => #owner::#made)
            });
            quote!(match view { #(#arms,)* })
        }
    };
    let more = match is_plain {
        true => key(owner, &variants),
        false => view_of(input, &variants),
    };
    Ok(quote! {
        #more

        impl ::brisk_objects::Value for #owner {
            const WIDTH: usize = 1 + ::brisk_objects::widest(&[#(#widths),*]);
            const TYPE: ::brisk_objects::Type = ::brisk_objects::Type::Enum(&[#(#kinds),*]);
            type View<'a> = #view_type;

            fn write(&self, out: &mut ::brisk_objects::ValueWriter<'_>, at: usize) {
                match self {
                    #(#writes)*
                }
            }

            #[inline]
            fn view_at(place: ::brisk_objects::Place<'_>) -> Self::View<'_> {
                match <u8 as ::brisk_objects::Value>::view_at(place) {
                    #(#looks,)*
                    #other
                }
            }

            fn owned(view: Self::View<'_>) -> Self {
                #owned
            }
        }
    })
}

/// The key that an enum without values is.
fn key(owner: &Ident, variants: &[Parts<'_>]) -> TokenStream {
    let has_others = variants.len() < MOST;
    let other = has_others.then(|| quote!(_ => ::core::option::Option::None,));
    let tags: Vec<_> = variants.iter().map(|variant| variant.tag).collect();
    let patterns = variants.iter().map(Parts::pattern);
    let made = variants.iter().map(Parts::pattern);
    quote! {
        impl ::brisk_objects::AsKey<#owner> for #owner {
            #[inline]
            fn encode_key(&self, out: &mut ::brisk_objects::KeyBytes) {
                out.push(match self { #(#owner::#patterns => #tags,)* });
            }
        }

        impl ::brisk_objects::Key for #owner {
            fn decode(bytes: &mut &[u8]) -> ::core::option::Option<Self> {
                match <u8 as ::brisk_objects::Key>::decode(bytes)? {
                    #(#tags => ::core::option::Option::Some(#owner::#made),)*
                    #other
                }
            }
        }
    }
}

/// The view of an enum with values: the same variants, which borrow.
fn view_of(input: &DeriveInput, variants: &[Parts<'_>]) -> TokenStream {
    let (owner, visibility, view) = (&input.ident, &input.vis, names::view(input));
    let about = format!("A look at a stored [`{owner}`].");
    let made = variants.iter().map(|variant| {
        let kinds = variant
            .types
            .iter()
            .map(|kind| quote!(<#kind as ::brisk_objects::Value>::View<'a>));
        let kinds: Vec<_> = kinds.collect();
        let docs: Vec<_> = variant
            .texts
            .iter()
            .map(|name| format!("The value `{name}`."))
            .collect();
        let (name, about) = (variant.name, format!("The variant `{}`.", variant.text));
        let fields = match variant.fields {
            Fields::Named(named) => {
                let names = named.named.iter().map(|field| &field.ident);
                quote!({ #(#[doc = #docs] #names: #kinds,)* })
            }
            Fields::Unnamed(_) => quote!((#(#[doc = #docs] #kinds,)*)),
            Fields::Unit => quote!(),
        };
        quote!(#[doc = #about] #name #fields)
    });
    quote! {
        #[doc = #about]
        #[derive(Clone, Copy, Debug)]
        #visibility enum #view<'a> {
            #(#made,)*
        }

        impl #view<'_> {
            /// A copy that borrows nothing.
            #visibility fn to_owned(&self) -> #owner {
                <#owner as ::brisk_objects::Value>::owned(*self)
            }
        }
    }
}
