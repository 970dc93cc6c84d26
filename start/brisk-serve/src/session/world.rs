//! Decides who sees the images of a session or a trace.

use brisk_launch::error::{Advice, Cause};

use super::open_image::SessionImage;
use super::program::{Bind, SeenBy};

/// How images become visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum World {
    /// In namespaces of its own.
    Namespaces,
    /// In the user's own world, or if `fusermount3` cannot do that, in namespaces.
    OwnOrNamespaces,
    /// In the user's own world, and nowhere else.
    Own,
}

/// What a session or a trace asks for that not every world has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Needs {
    /// What only namespaces can give.
    pub(crate) namespaces: Option<&'static str>,
    /// A directory to mount on. An ordinary user may write to few of those that images name.
    pub(crate) place: bool,
}

impl Needs {
    pub(crate) fn of(
        image: &SessionImage,
        with: &[SessionImage],
        root: bool,
        binds: &[Bind],
        writable: bool,
    ) -> Self {
        let asked = [
            ("an image as the root directory", root),
            ("several images", !with.is_empty()),
            ("binding files into an image", !binds.is_empty()),
            ("writing into an image", writable),
        ];
        Self {
            namespaces: asked
                .into_iter()
                .find_map(|(what, is_asked)| is_asked.then_some(what)),
            place: image.at.is_some(),
        }
    }
}

/// | asked for | a root directory, writing, bound files, several images, traced directories | a place | root | the world |
/// |---|---|---|---|---|
/// | the user sees it | yes | | | refused |
/// | the user sees it | no | | | its own |
/// | the program sees it | | | | namespaces |
/// | nothing | no | no | no | its own, or else namespaces |
/// | nothing | anything else | | | namespaces |
///
/// Root needs no user namespace, so a namespace costs it nothing.
pub(crate) fn world(
    seen_by: Option<SeenBy>,
    needs: Needs,
    is_privileged: bool,
) -> Result<World, Cause> {
    match (seen_by, needs.namespaces) {
        (Some(SeenBy::User), Some(what)) => {
            let text = format!(
                "{what} shows it to the program alone, and all programs of the user should see it"
            );
            Err(Cause::unsupported(text).advise(Advice::ChooseWhoSees))
        }
        (Some(SeenBy::User), None) => Ok(World::Own),
        (Some(SeenBy::Program), _) | (None, Some(_)) => Ok(World::Namespaces),
        (None, None) if needs.place || is_privileged => Ok(World::Namespaces),
        (None, None) => Ok(World::OwnOrNamespaces),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_made_only_where_something_needs_it() {
        const ROOT: Option<&str> = Some("--root");
        const USER: Option<SeenBy> = Some(SeenBy::User);
        const PROGRAM: Option<SeenBy> = Some(SeenBy::Program);
        for (seen_by, namespaces, place, is_privileged, expected) in [
            (None, None, false, false, Some(World::OwnOrNamespaces)),
            (None, None, false, true, Some(World::Namespaces)),
            (None, None, true, false, Some(World::Namespaces)),
            (None, ROOT, false, false, Some(World::Namespaces)),
            (PROGRAM, None, false, false, Some(World::Namespaces)),
            (PROGRAM, ROOT, true, true, Some(World::Namespaces)),
            (USER, None, false, false, Some(World::Own)),
            (USER, None, true, false, Some(World::Own)),
            (USER, None, false, true, Some(World::Own)),
            (USER, ROOT, false, false, None),
        ] {
            let needs = Needs { namespaces, place };
            let found = world(seen_by, needs, is_privileged).ok();
            assert_eq!(found, expected, "{seen_by:?} {needs:?} {is_privileged}");
        }
    }
}
