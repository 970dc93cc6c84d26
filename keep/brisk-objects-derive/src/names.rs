use quote::format_ident;
use syn::{Data, DeriveInput, Field, Fields, Ident, spanned::Spanned};

/// The named fields of a struct without parameters.
pub(crate) fn fields(input: &DeriveInput) -> syn::Result<Vec<&Field>> {
    refuse_parameters(input)?;
    match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(named) => Ok(named.named.iter().collect()),
            other => Err(syn::Error::new(other.span(), "name the fields")),
        },
        _ => Err(syn::Error::new(
            input.span(),
            "a record is a struct, which can have enums as fields",
        )),
    }
}

/// Refuses a type with parameters.
pub(crate) fn refuse_parameters(input: &DeriveInput) -> syn::Result<()> {
    match input.generics.params.first() {
        None => Ok(()),
        Some(parameter) => Err(syn::Error::new(
            parameter.span(),
            "a stored type has no parameters: one layout has one name",
        )),
    }
}

/// The name of a named field.
pub(crate) fn name(field: &Field) -> syn::Result<&Ident> {
    let missing = || syn::Error::new(field.span(), "name the field");
    field.ident.as_ref().ok_or_else(missing)
}

/// The name of the view of a struct.
pub(crate) fn view(input: &DeriveInput) -> Ident {
    format_ident!("{}View", input.ident)
}

/// `LineItem` as `line_item`.
pub(crate) fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
